#!/usr/bin/env bash
# Converts the corpora of the fuzz targets. The repository has one file for each, fuzz/corpus/TARGET.hex, with an input
# per line: its name, a blank, its bytes in hexadecimal. The fuzzer needs a folder, fuzz/corpus/TARGET/, with a file per
# input.
#
# scripts/fuzz-corpus.sh unpack [TARGET...]    create missing files in the folders
# scripts/fuzz-corpus.sh minimize [TARGET...]  remove inputs that add no coverage from the folders
# scripts/fuzz-corpus.sh pack [TARGET...]      write the .hex files from the folders
#
# TARGET  default: all of them
#
# The fuzzer names its inputs by their SHA-1. An input with any other name was chosen by hand, and is always kept. To
# keep a crash, copy it from fuzz/artifacts/TARGET/ under a descriptive name.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C

CORPUS=fuzz/corpus
FUZZ=(cargo "+${FUZZ_TOOLCHAIN:-nightly}" fuzz)

unpack() {
    local name digits
    mkdir -p "$CORPUS/$1"
    while read -r name digits; do
        [ -e "$CORPUS/$1/$name" ] || basenc --base16 --decode <<<"$digits" >"$CORPUS/$1/$name"
    done <"$CORPUS/$1.hex"
}

pack() {
    local file
    for file in "$CORPUS/$1"/*; do
        printf '%s %s\n' "${file##*/}" "$(basenc --base16 --wrap=0 "$file")"
    done >"$CORPUS/$1.hex.new"
    mv "$CORPUS/$1.hex.new" "$CORPUS/$1.hex"
}

minimize() {
    local folder=$CORPUS/$1 chosen
    chosen=$(mktemp -d)
    find "$folder" -type f | grep -vE '/[0-9a-f]{40}$' | xargs -r cp -t "$chosen"
    "${FUZZ[@]}" cmin "$1"
    find "$chosen" -type f -exec cp -t "$folder" {} +
    rm -r "$chosen"
}

action=${1:-}
case $action in
unpack | minimize | pack) shift ;;
*)
    echo "error: expected unpack, minimize or pack, found '$action'" >&2
    exit 2
    ;;
esac
if [ $# -eq 0 ]; then
    set -- fuzz/fuzz_targets/*.rs
    set -- "${@##*/}"
    set -- "${@%.rs}"
fi
for target in "$@"; do
    [ -e "fuzz/fuzz_targets/$target.rs" ] || {
        echo "error: there is no fuzz target '$target': expected a name from fuzz/fuzz_targets/" >&2
        exit 2
    }
    "$action" "$target"
done
