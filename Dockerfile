# syntax=docker/dockerfile:1

# Both images are lists for amd64 and arm64. To renew a digest: docker buildx imagetools inspect IMAGE:TAG
FROM rust:1.95-bookworm@sha256:6258907abe69656e41cd992e0b705cdcfabcbbe3db374f92ed2d47121282d4a1 AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --profile dist --locked --package sluice --bin sluice && cp target/dist/sluice /sluice

# glibc, its name lookups and the usual authorities: no shell, no package manager.
FROM gcr.io/distroless/cc-debian12:nonroot@sha256:9dac0a79194e45a7da0158a9c6da57b217585af0786db3845d1f0ec1a0dd182f
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="sluice" \
      org.opencontainers.image.description="An xDS relay for many Envoy and gRPC clients" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /sluice /app/sluice
# The quickstart is found beside the executable.
COPY config /app/config
WORKDIR /app
# A number, so that Kubernetes sees that it is not root.
USER 65532:65532
EXPOSE 18000
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 CMD ["/app/sluice", "status", "--ready"]
ENTRYPOINT ["/app/sluice"]
CMD ["serve", "--config", "/app/config/container.yaml"]
