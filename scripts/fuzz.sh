#!/usr/bin/env bash
# Runs the fuzz targets, one after the other and on one core. Each run adds a line to target/fuzz/TARGET.txt: seconds,
# executions, edges covered, inputs and bytes of the corpus.
#
# scripts/fuzz.sh run SECONDS [TARGET...]  run targets (default: all) for this long each; stops at the first finding
# scripts/fuzz.sh results PAGE             write the sum of all runs into the section `fuzz` of a page
#
# The targets have no unsafe code but that of the cryptography library, so they run without a sanitizer, but with debug
# assertions and checks for overflow. SANITIZER=address changes that.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
LOGS=target/fuzz
targets() { (cd fuzz/fuzz_targets && printf '%s\n' *.rs | sed 's/\.rs$//'); }

run() {
    local seconds=$1 target triple output
    shift
    [ $# -gt 0 ] || set -- $(targets)
    mkdir -p "$LOGS"
    triple=$(rustc -vV | sed -n 's/^host: //p')
    scripts/fuzz-corpus.sh unpack "$@"
    cargo "+${FUZZ_TOOLCHAIN:-nightly}" fuzz build --sanitizer "${SANITIZER:-none}"
    for target in "$@"; do
        output=$LOGS/$target.log
        mkdir -p "fuzz/artifacts/$target"
        "fuzz/target/$triple/release/$target" "fuzz/corpus/$target" -artifact_prefix="fuzz/artifacts/$target/" \
            -max_total_time="$seconds" -timeout=20 -print_final_stats=1 2>"$output" || {
            tail -n 40 "$output" >&2
            exit 1
        }
        count "$output" "$seconds" >>"$LOGS/$target.txt"
        printf '%s: ' "$target"
        tail -n 1 "$LOGS/$target.txt"
    done
}

# Prints the figures at the end of a run. The fuzzer writes sizes as 12b, 34Kb or 5Mb.
count() {
    awk -v seconds="$2" '
        / cov: / {
            for (field = 1; field < NF; field++) {
                if ($field == "cov:") edges = $(field + 1)
                if ($field == "corp:") corpus = $(field + 1)
            }
        }
        /^stat::number_of_executed_units:/ { executions = $2 }
        END {
            split(corpus, part, "/")
            unit = part[2] ~ /Mb$/ ? 1048576 : part[2] ~ /Kb$/ ? 1024 : 1
            print seconds, executions, edges, part[1], (part[2] + 0) * unit
        }' "$1"
}

results() {
    local target
    for target in $(targets); do
        [ -e "$LOGS/$target.txt" ] || continue
        sed "s/^/$target /" "$LOGS/$target.txt"
    done | awk '
        function large(number) {
            return number >= 1e9 ? sprintf("%.1f × 10⁹", number / 1e9) : \
                number >= 1e6 ? sprintf("%.1f × 10⁶", number / 1e6) : sprintf("%d", number)
        }
        BEGIN {
            print "| target | minutes | executions | a second | edges covered | corpus, inputs | KiB |"
            print "|---|---|---|---|---|---|---|"
        }
        !($1 in seconds) { names[++count] = $1 }
        { seconds[$1] += $2; runs[$1] += $3; edges[$1] = $4; inputs[$1] = $5; bytes[$1] = $6 }
        END {
            for (place = 1; place <= count; place++) {
                name = names[place]
                all += runs[name]
                time += seconds[name]
                printf "| %s | %.1f | %s | %d | %d | %d | %d |\n", name, seconds[name] / 60, large(runs[name]),
                    runs[name] / seconds[name], edges[name], inputs[name], bytes[name] / 1024
            }
            printf "\n%s executions in all, in %.0f minutes of one core.\n", large(all), time / 60
        }' | scripts/write-section.sh "$1" fuzz
}

action=${1:-}
case $action in
run | results)
    shift
    [ $# -gt 0 ] || { echo "error: $action needs an argument" >&2; exit 2; }
    "$action" "$@"
    ;;
*)
    echo "error: expected run or results, found '$action'" >&2
    exit 2
    ;;
esac
