# syntax=docker/dockerfile:1
# Verifiers: amd64 with NVIDIA GPUs. torch's wheels bring CUDA; the node has the driver.
#   docker buildx build -f docker/cuda.Dockerfile -t outrider-cuda .
#   docker buildx build -f docker/cuda.Dockerfile -t outrider-cuda-vllm --build-arg ENGINE=vllm .
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d
ARG ENGINE=torch

FROM ${PYTHON_IMAGE} AS build-torch
ARG TORCH_INDEX_URL=
ARG TORCH_SHA256=
RUN --mount=type=bind,target=/src /src/docker/install.sh environment "${TORCH_INDEX_URL}"

FROM ${PYTHON_IMAGE} AS build-vllm
ARG TORCH_INDEX_URL=
ARG TORCH_SHA256=
RUN --mount=type=bind,target=/src /src/docker/install.sh environment "${TORCH_INDEX_URL}" vllm

FROM build-torch AS models
ENV OUTRIDER_HOME=/opt/models
RUN --mount=type=bind,target=/src /src/docker/install.sh outrider && /src/docker/install.sh models

# Triton, which vLLM uses, and torch.compile want a C compiler where they run.
FROM ${PYTHON_IMAGE} AS base
# hadolint ignore=DL3008  # Debian keeps one version of a package for a release
RUN apt-get update \
    && apt-get install --yes --no-install-recommends curl gcc libc6-dev rsync \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home outrider
COPY --from=models /opt/models /opt/models
COPY docker/healthy.py /opt/healthy.py

FROM base AS with-torch
COPY --from=build-torch /opt/outrider /opt/outrider

FROM base AS with-vllm
COPY --from=build-vllm /opt/outrider /opt/outrider

# hadolint ignore=DL3006  # a stage of this file
FROM with-${ENGINE}
RUN --mount=type=bind,target=/src /src/docker/install.sh outrider
ARG VERSION
ARG REVISION=unknown
ARG ENGINE
LABEL org.opencontainers.image.title="outrider-cuda" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.licenses="Apache-2.0" \
    outrider.engine="${ENGINE}"
ENV PATH=/opt/outrider/bin:$PATH OUTRIDER_HOME=/opt/models HF_HUB_OFFLINE=1 RAY_USAGE_STATS_ENABLED=0 \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
WORKDIR /home/outrider
EXPOSE 8000 8080
HEALTHCHECK --interval=10s --timeout=10s --start-period=300s --retries=6 CMD ["python", "/opt/healthy.py"]
# It asks for keys. To serve whoever reaches the port, name the command without them: docker/README.md.
CMD ["outrider", "serve", "--set", "http.host=0.0.0.0", "--set", "auth.keys_file=/etc/outrider/keys.yaml"]
