#!/bin/sh
# Writes the directory that kustomize turns into the settings and Secrets of a sidecar or gateway.
#
#   k8s/init-sidecar.sh DIRECTORY APP [ACCOUNT]
#
# The ConfigMap is called APP-auth, the Secrets APP-auth-keys and APP-auth-credentials. Creates sidecar.yaml, a first
# key, and a first credential of ACCOUNT (default: demo), which is printed once, as JSON. Existing files are kept:
# after `keys add` or `credentials add` run it again, then apply. The program is the one of this checkout, or
# $STORAGE_AUTH_SIDECAR.
set -eu
umask 077

directory=${1:?"usage: init-sidecar.sh DIRECTORY APP [ACCOUNT]"}
app=${2:?"usage: init-sidecar.sh DIRECTORY APP [ACCOUNT]"}
account=${3:-demo}
here=$(cd "$(dirname "$0")" && pwd)
sidecar() { ${STORAGE_AUTH_SIDECAR:-node "$here/../dist/main.js"} "$@"; }

mkdir -p "$directory/keys" "$directory/credentials"
cd "$directory"
[ -n "$(find keys -name '*.jwk.json')" ] || sidecar keys add --directory keys >&2
[ -e credentials/credentials.yaml ] ||
  sidecar credentials add --file credentials/credentials.yaml --account "$account"
[ -e credentials/revocations.yaml ] || echo 'revocations: []' > credentials/revocations.yaml
[ -e sidecar.yaml ] || cat > sidecar.yaml << 'SETTINGS'
upstreams: [{ prefix: /, url: http://127.0.0.1:9000 }] # where your container listens
# scopes: { hosts: [storage.example.com] } # needed for restricted credentials and links: the hosts that clients use
# forwarded: { trust: [10.244.3.7, 10.244.5.4] } # needed behind an ingress: its own addresses, no range with other pods
keys: { directory: /etc/storage-auth-sidecar/keys }
credentials: { file: /etc/storage-auth-sidecar/credentials/credentials.yaml }
revocations: { file: /etc/storage-auth-sidecar/credentials/revocations.yaml }
SETTINGS
[ -e .gitignore ] || printf '%s\n' '# Private keys and credentials' keys/ credentials/ > .gitignore

{
  echo '# Written by init-sidecar.sh.'
  echo 'apiVersion: kustomize.config.k8s.io/v1beta1'
  echo 'kind: Kustomization'
  echo "namePrefix: $app-"
  echo 'configMapGenerator:'
  echo '  - { name: auth, files: [sidecar.yaml] }'
  echo 'secretGenerator:'
  for part in keys credentials; do
    echo "  - name: auth-$part"
    echo '    options: { disableNameSuffixHash: true } # changed Secrets are read without a restart'
    echo '    files:'
    find "$part" -type f ! -name '.*' ! -name '*.lock' ! -name '*.tmp' | sort | sed 's/^/      - /'
  done
} > kustomization.yaml
