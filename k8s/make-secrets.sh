#!/bin/sh
# Makes the Secrets of a sidecar or gateway as files, and a kustomization that turns them into Secrets.
#
#   k8s/make-secrets.sh DIRECTORY [NAME] [ACCOUNT]
#
# NAME is the beginning of the Secrets' names: storage-auth-sidecar (default) or storage-auth-gateway. A first key and
# a first credential, of ACCOUNT (default: demo), are made where there are none; the credential is printed, once, as
# JSON. What is there is kept: after `keys add`, `credentials add` and the like run it again, then apply.
# DIRECTORY is for your eyes only; keep it out of version control. The program is the one of this checkout, or what
# the variable STORAGE_AUTH_SIDECAR says.
set -eu
umask 077

directory=${1:?"usage: make-secrets.sh DIRECTORY [NAME] [ACCOUNT]"}
name=${2:-storage-auth-sidecar}
account=${3:-demo}
here=$(cd "$(dirname "$0")" && pwd)
sidecar() { ${STORAGE_AUTH_SIDECAR:-node "$here/../dist/main.js"} "$@"; }

mkdir -p "$directory/keys" "$directory/credentials"
cd "$directory"
[ -n "$(find keys -name '*.jwk.json')" ] || sidecar keys add --directory keys >&2
[ -e credentials/credentials.yaml ] ||
  sidecar credentials add --file credentials/credentials.yaml --account "$account"
[ -e credentials/revocations.yaml ] || echo 'revocations: []' > credentials/revocations.yaml

# No hash in the names: a sidecar follows its Secrets while it runs, and needs no new pod for them.
{
  echo '# Written by make-secrets.sh.'
  echo 'apiVersion: kustomize.config.k8s.io/v1beta1'
  echo 'kind: Kustomization'
  echo 'generatorOptions:'
  echo '  disableNameSuffixHash: true'
  echo 'secretGenerator:'
  for part in keys credentials; do
    echo "  - name: $name-$part"
    echo '    files:'
    find "$part" -type f ! -name '.*' ! -name '*.lock' ! -name '*.tmp' | sort | sed 's/^/      - /'
  done
} > kustomization.yaml
