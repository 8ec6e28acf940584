# syntax=docker/dockerfile:1
# Drafters: arm64, on JetPack 6. Its own Python is 3.10, so the one that all nodes of a Ray cluster share is brought along; a
# torch for that Python and JetPack's CUDA has to be named, with its SHA-256, as pip's own index has none that uses a Jetson's GPU:
#   docker buildx build --platform linux/arm64 -f docker/jetson.Dockerfile \
#       --build-arg TORCH_INDEX_URL=https://... --build-arg TORCH_SHA256=... .
ARG JETPACK_IMAGE=nvcr.io/nvidia/l4t-jetpack:r36.4.0@sha256:34ccf0f3b63c6da9eee45f2e79de9bf7fdf3beda9abfd72bbf285ae9d40bb673
ARG UV_IMAGE=ghcr.io/astral-sh/uv:0.9.5@sha256:f459f6f73a8c4ef5d69f4e6fbbdb8af751d6fa40ec34b39a1ab469acd6e289b7

FROM ${UV_IMAGE} AS uv

FROM ${JETPACK_IMAGE} AS build
ARG PYTHON_VERSION=3.11.14
ARG TORCH_INDEX_URL
ARG TORCH_SHA256
COPY --from=uv /uv /usr/local/bin/uv
ENV UV_PYTHON_INSTALL_DIR=/opt/python
RUN uv python install "${PYTHON_VERSION}" && ln -s "$(uv python find "${PYTHON_VERSION}")" /usr/local/bin/python3
RUN --mount=type=bind,target=/src \
    test -n "${TORCH_INDEX_URL}" && test -n "${TORCH_SHA256}" \
    && /src/docker/install.sh environment "${TORCH_INDEX_URL}"

FROM build AS models
ENV OUTRIDER_HOME=/opt/models
RUN --mount=type=bind,target=/src /src/docker/install.sh outrider && /src/docker/install.sh models

FROM ${JETPACK_IMAGE}
RUN useradd --uid 10001 --create-home --groups video outrider
COPY --from=build /opt/python /opt/python
COPY --from=build /opt/outrider /opt/outrider
COPY --from=models /opt/models /opt/models
COPY docker/healthy.py /opt/healthy.py
RUN --mount=type=bind,target=/src /src/docker/install.sh outrider
ARG VERSION
ARG REVISION=unknown
LABEL org.opencontainers.image.title="outrider-jetson" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/outrider/bin:$PATH OUTRIDER_HOME=/opt/models HF_HUB_OFFLINE=1 RAY_USAGE_STATS_ENABLED=0
USER 10001:10001
WORKDIR /home/outrider
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=10s --start-period=120s --retries=6 CMD ["python", "/opt/healthy.py"]
CMD ["ray", "--version"]
