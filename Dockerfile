# The storage auth sidecar: the compiled program and its production packages on a distroless Node, without shell, npm
# or compiler.
#
#   docker build -t storage-auth-sidecar:0.2.0-dev --build-arg VERSION=0.2.0-dev --build-arg REVISION=$(git rev-parse HEAD) .
#   docker run --user "$(id -u):$(id -g)" --read-only --cap-drop ALL -p 8080:8080 -p 127.0.0.1:8081:8081 \
#     -v "$PWD/etc:/etc/storage-auth-sidecar:ro" storage-auth-sidecar:0.2.0-dev \
#     serve --config /etc/storage-auth-sidecar/sidecar.yaml
#
# `--user`: key files have mode 0600, so the process must run as their owner. For reproducible builds name the base
# images by digest: --build-arg BUILD_IMAGE=node:26-trixie-slim@sha256:…
ARG BUILD_IMAGE=node:26-trixie-slim
ARG RUNTIME_IMAGE=gcr.io/distroless/nodejs26-debian13:nonroot

# The next two stages produce JavaScript, the same for every platform: they run on the platform of the builder.
FROM --platform=$BUILDPLATFORM ${BUILD_IMAGE} AS packages
WORKDIR /app
COPY package.json package-lock.json ./
# Type declarations, source maps and manuals are half of the size and unused; licences stay.
RUN --mount=type=cache,target=/root/.npm \
    npm ci --omit=dev --ignore-scripts --prefer-offline --no-audit --no-fund && \
    find node_modules -type f \( -name '*.ts' -o -name '*.mts' -o -name '*.cts' -o -name '*.map' \
      -o -name '*.md' -not -iname 'licen[cs]e*' \) -delete && \
    find node_modules -type d -empty -delete

FROM --platform=$BUILDPLATFORM ${BUILD_IMAGE} AS build
WORKDIR /app
COPY package.json package-lock.json ./
RUN --mount=type=cache,target=/root/.npm \
    npm ci --include=dev --ignore-scripts --prefer-offline --no-audit --no-fund
COPY tsconfig.json ./
COPY scripts scripts
COPY src src
RUN npm run build

FROM ${RUNTIME_IMAGE}
# Files belong to root: the user below cannot write them.
USER 0:0
WORKDIR /app
ENV NODE_ENV=production
COPY --from=packages /app/node_modules node_modules
COPY --from=build /app/dist dist
COPY --chmod=0644 package.json LICENSE ./

# By number: runAsNonRoot of Kubernetes cannot check a name.
USER 65532:65532
# Fails the build when a module is missing or does not load as this user.
RUN ["/nodejs/bin/node", "/app/dist/main.js", "config", "schema"]

EXPOSE 8080 8081
STOPSIGNAL SIGTERM
# Kubernetes ignores this. Another admin port comes from SIDECAR_ADMIN_PORT.
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s --retries=3 \
  CMD ["/nodejs/bin/node", "-e", "require('node:http').get({ host: '127.0.0.1', port: process.env.SIDECAR_ADMIN_PORT || 8081, path: '/livez', timeout: 3000 }, ({ statusCode }) => process.exit(statusCode === 200 ? 0 : 1)).on('timeout', () => process.exit(1)).on('error', () => process.exit(1))"]
# Node is process 1 and receives the signals.
ENTRYPOINT ["/nodejs/bin/node", "/app/dist/main.js"]
CMD ["serve"]

# Last: they differ in every build.
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="storage-auth-sidecar" \
      org.opencontainers.image.description="Issues and checks Account API tokens in front of any storage service" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}"
