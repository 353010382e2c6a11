#!/usr/bin/env bash
# Builds an HTTP/3 server to compare with: contenders/build.sh NAME PREFIX
#
# NAME is h2o or quic-go. Its program comes to lie in PREFIX/bin. h2o's sources are cloned from upstream into PREFIX/src,
# at the commit below; a folder that lies there is used as it is. JOBS is the number of compiler processes (default: one
# for each core).
#
# h2o needs git, and from Debian: cmake, perl, build-essential, libssl-dev and zlib1g-dev. quic-go needs Go.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
name=${1:?expected the name of a server; see the head of contenders/build.sh}
prefix=${2:?expected the folder to install into, such as target/peers}
mkdir -p "$prefix/bin" "$prefix/src"
prefix=$(cd "$prefix" && pwd)
jobs=${JOBS:-$(nproc)}

build_h2o() {
  local source=$prefix/src/h2o
  if [ ! -d "$source" ]; then
    rm -rf "$source.part"
    git clone --quiet --no-checkout --filter=blob:none https://github.com/h2o/h2o.git "$source.part"
    git -C "$source.part" -c advice.detachedHead=false checkout --quiet edd7a120bfc4af11ac0cbebce2a43cc1f93f9af1
    mv "$source.part" "$source"
  fi
  cmake -S "$source" -B "$source/build" -DCMAKE_BUILD_TYPE=Release -DWITH_MRUBY=OFF -DWITH_FUSION=ON
  cmake --build "$source/build" --parallel "$jobs" --target h2o
  install "$source/build/h2o" "$prefix/bin/h2o"
}

build_quic-go() {
  cd "$here/quic-go"
  GOBIN=$prefix/bin go install .
}

case $name in
  h2o | quic-go) "build_$name" ;;
  *)
    echo "$0: there is no server \"$name\" here; expected h2o or quic-go" >&2
    exit 2
    ;;
esac
