# syntax=docker/dockerfile:1

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package sluice --bin sluice && cp target/release/sluice /sluice

# glibc and nothing else: no shell, no package manager; runs as uid 65532.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /sluice /app/sluice
# The quickstart is found beside the executable.
COPY config /app/config
WORKDIR /app
EXPOSE 18000
ENTRYPOINT ["/app/sluice"]
# 127.0.0.1, where the quickstart listens, is the container itself.
CMD ["serve", "--config", "/app/config/container.yaml"]
