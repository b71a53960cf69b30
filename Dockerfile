# The storage auth sidecar as a container image: the compiled program and its production packages on a
# distroless Node, without shell, npm or compiler.
#
#   docker build -t storage-auth-sidecar:0.1.0 --build-arg VERSION=0.1.0 --build-arg REVISION=$(git rev-parse HEAD) .
#   docker run --read-only --cap-drop ALL -p 8080:8080 -p 127.0.0.1:8081:8081 \
#     -v ./sidecar:/etc/storage-auth-sidecar:ro storage-auth-sidecar:0.1.0 \
#     serve --config /etc/storage-auth-sidecar/sidecar.yaml
#
# Node 26 is the newest LTS line (since 2026-10-28). Tags move; to build from exactly the bytes that you
# reviewed, or from a mirror, name them by digest. `docker buildx imagetools inspect IMAGE` prints it:
#
#   --build-arg BUILD_IMAGE=node:26-trixie-slim@sha256:… --build-arg RUNTIME_IMAGE=gcr.io/…@sha256:…
ARG BUILD_IMAGE=node:26-trixie-slim
ARG RUNTIME_IMAGE=gcr.io/distroless/nodejs26-debian13:nonroot

# What comes out of the next two stages is JavaScript, the same for every platform (a test sees to it that no
# package brings machine code): they run on the machine that builds, however many platforms are asked for.
FROM --platform=$BUILDPLATFORM ${BUILD_IMAGE} AS packages
WORKDIR /app
COPY package.json package-lock.json ./
# No package runs scripts of its own. Type declarations, source maps and manuals are half of what is
# installed, and nothing reads them; licences stay.
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
# Everything belongs to root, and the user below cannot write it.
USER 0:0
WORKDIR /app
ENV NODE_ENV=production
COPY --from=packages /app/node_modules node_modules
COPY --from=build /app/dist dist
COPY --chmod=0644 package.json LICENSE ./

# By number: Kubernetes' runAsNonRoot cannot tell of a name that it is not root's.
USER 65532:65532
# Every module is there, and loads under this Node as this user; the build fails where one does not.
RUN ["/nodejs/bin/node", "/app/dist/main.js", "config", "schema"]

EXPOSE 8080 8081
STOPSIGNAL SIGTERM
# Kubernetes passes this over and has probes of its own. Another admin port comes from SIDECAR_ADMIN_PORT.
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s --retries=3 \
  CMD ["/nodejs/bin/node", "-e", "require('node:http').get({ host: '127.0.0.1', port: process.env.SIDECAR_ADMIN_PORT || 8081, path: '/livez', timeout: 3000 }, ({ statusCode }) => process.exit(statusCode === 200 ? 0 : 1)).on('timeout', () => process.exit(1)).on('error', () => process.exit(1))"]
# Node is process 1 and gets the signals: no shell and no npm in between.
ENTRYPOINT ["/nodejs/bin/node", "/app/dist/main.js"]
CMD ["serve"]

# Last, as they differ in every build.
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="storage-auth-sidecar" \
      org.opencontainers.image.description="Issues, checks and remembers Account API tokens in front of any storage service" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}"
