# syntax=docker/dockerfile:1
# Trial: amd64 without a GPU, the embedded pair inside. docker/README.md says how to run it; KubeRay starts Ray instead.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d

FROM ${PYTHON_IMAGE} AS build
ARG TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
ARG TORCH_SHA256=
ENV OUTRIDER_HOME=/opt/models
RUN --mount=type=bind,target=/src /src/docker/install.sh environment "${TORCH_INDEX_URL}"

FROM build AS models
RUN --mount=type=bind,target=/src /src/docker/install.sh outrider && /src/docker/install.sh models

FROM ${PYTHON_IMAGE}
# hadolint ignore=DL3008  # Debian keeps one version of a package for a release
RUN apt-get update \
    && apt-get install --yes --no-install-recommends curl openssh-client rsync \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home outrider
COPY --from=build /opt/outrider /opt/outrider
COPY --from=models /opt/models /opt/models
COPY docker/healthy.py /opt/healthy.py
RUN --mount=type=bind,target=/src /src/docker/install.sh outrider
ARG VERSION
ARG REVISION=unknown
LABEL org.opencontainers.image.title="outrider-cpu" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/outrider/bin:$PATH OUTRIDER_HOME=/opt/models HF_HUB_OFFLINE=1 RAY_USAGE_STATS_ENABLED=0
USER 10001:10001
WORKDIR /home/outrider
EXPOSE 8000 8080
HEALTHCHECK --interval=10s --timeout=10s --start-period=300s --retries=6 CMD ["python", "/opt/healthy.py"]
# It asks for keys. To serve whoever reaches the port, name the command without them: docker/README.md.
CMD ["outrider", "serve", "--set", "http.host=0.0.0.0", "--set", "auth.keys_file=/etc/outrider/keys.yaml"]
