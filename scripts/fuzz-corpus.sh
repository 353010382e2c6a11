#!/usr/bin/env bash
# The corpora of the fuzz targets. In the repository each is one file, fuzz/corpus/TARGET.hex, with an input on each line: its
# name, a blank, its bytes in hexadecimal. The fuzzer wants a folder, fuzz/corpus/TARGET/, with a file for each.
#
# scripts/fuzz-corpus.sh unpack [TARGET...]    make the folders, with what is missing in them
# scripts/fuzz-corpus.sh minimize [TARGET...]  leave in the folders what the coverage needs
# scripts/fuzz-corpus.sh pack [TARGET...]      make the files, of all that is in the folders
#
# TARGET  all of them unless said otherwise
#
# What the fuzzer has named is called after its SHA-1. An input of any other name was chosen by somebody, and is kept
# whatever it covers. To keep a crash, copy it from fuzz/artifacts/TARGET/ under a name that says what it is.
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
