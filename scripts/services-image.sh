#!/usr/bin/env bash
# services-image.sh: build the image of deploy/image for the tests of it; needs root, Debian and some minutes.
#
# No registry is asked: Debian's own base image is stood in for by one that debootstrap makes of the same release.
# Everything stays in `.services/image`; the tests start containers from there and end them.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$PWD/.services/image
release=bookworm
base=localhost/holdfast-test-base
image=localhost/holdfast-test
litter=()
trap 'rm -rf "${litter[@]}"' EXIT

if [ "$(id -u)" -ne 0 ]; then
  echo "error: building the image needs root; run: sudo make services-image" >&2
  exit 2
fi
missing=()
for name in buildah podman runc debootstrap; do
  command -v "$name" >/dev/null || missing+=("$name")
done
if [ ${#missing[@]} -gt 0 ]; then
  if ! command -v apt-get >/dev/null; then
    echo "error: no apt-get here; install these yourself: ${missing[*]}" >&2
    exit 7
  fi
  echo "installing ${missing[*]} …" >&2
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq || { echo "error: the package lists cannot be fetched" >&2; exit 5; }
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2 \
    || { echo "error: these packages cannot be installed: ${missing[*]}" >&2; exit 5; }
fi

mkdir -p "$target"
build=(buildah --root "$target/storage" --runroot "$target/run" --storage-driver overlay --log-level error)
if ! "${build[@]}" inspect --type image "$base" >/dev/null 2>&1; then
  echo "making the base, Debian $release …" >&2
  tree=$(mktemp -d "$target/base-XXXXXX")
  litter+=("$tree")
  debootstrap --variant=minbase --include=ca-certificates "$release" "$tree" http://deb.debian.org/debian \
    >"$target/base.log" 2>&1 || { echo "error: debootstrap failed; see $target/base.log" >&2; exit 5; }
  # Certificates that this machine was given beside Debian's.
  cp /usr/local/share/ca-certificates/*.crt "$tree/usr/local/share/ca-certificates/" 2>/dev/null || true
  chroot "$tree" update-ca-certificates >/dev/null 2>&1
  container=$("${build[@]}" from scratch)
  "${build[@]}" add --quiet "$container" "$tree" / >/dev/null
  "${build[@]}" commit --quiet --rm "$container" "$base" >/dev/null
fi
echo "building the image …" >&2
"${build[@]}" build --isolation chroot --network host --layers --build-arg "BASE=$base" \
  --file deploy/image/Dockerfile --tag "$image" . >"$target/build.log" 2>&1 \
  || { tail -n 20 "$target/build.log" >&2; echo "error: the image was not built; see $target/build.log" >&2; exit 5; }
echo "image  $image in $target/storage"
