#!/usr/bin/env bash
# Counts the instructions of the relay's fan-out under callgrind and compares them with the number in
# the tree: more than 2 % above fails, more than 2 % below asks for an update.
#
# scripts/count-instructions.sh [--update] [PROGRAM]
#
# --update  write the count into crates/weir/benches/fanout.instructions
# PROGRAM   target/release/examples/fanout
#
# Counted are the instructions of the program's own code. Those of the C library are not, for they
# depend on where memory happens to lie; how often it is called (allocations, copies) is counted
# instead. Two runs differ by a few parts in a million at most.
set -euo pipefail
cd "$(dirname "$0")/.."

COMMITTED=crates/weir/benches/fanout.instructions
# Which function to count in, with all that it calls.
COUNTED='fanout::Counted::fan_out'
# Two runs may differ by so many parts in a million; beyond that the run is not what it should be.
REPEAT_PPM_MAX=100

is_update='' program=target/release/examples/fanout
for argument in "$@"; do
    case $argument in
    --update) is_update=yes ;;
    -*)
        echo "error: unknown option $argument" >&2
        exit 2
        ;;
    *) program=$argument ;;
    esac
done
[ -x "$program" ] || {
    echo "error: no program at $program: \`make instructions\` builds it" >&2
    exit 2
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Adds up a profile: what the program's own code cost, and how often it called the C library.
# Names are written out once and then stand for themselves as "(number)".
sum_up() {
    awk '
        function object(text, id) {
            id = text
            sub(/\).*/, "", id)
            if (index(text, ") ")) names[id] = substr(text, index(text, ") ") + 2)
            return names[id]
        }
        function is_library(name) { return name ~ /\.so(\.|$)/ }
        /^ob=/ { here = object(substr($0, 4)); next }
        /^cob=/ { there = object(substr($0, 5)); next }
        /^calls=/ {
            split(substr($0, 7), counts, " ")
            if (there != "" && is_library(there) && !is_library(here)) calls += counts[1]
            there = ""
            is_callee_cost = 1
            next
        }
        /^[0-9+*-]/ {
            if (!is_callee_cost && !is_library(here)) cost += $2
            is_callee_cost = 0
        }
        END { printf "%d %d\n", cost, calls }' "$1"
}

count() {
    valgrind --tool=callgrind --callgrind-out-file="$folder/profile" \
        --toggle-collect="$COUNTED" "$program" >"$folder/output" 2>"$folder/log" || {
        cat "$folder/output" "$folder/log" >&2
        echo "error: the run under callgrind failed" >&2
        return 1
    }
    sum_up "$folder/profile"
}

# How much larger $1 is than $2, in parts in a million.
ppm() { awk -v new="$1" -v old="$2" 'BEGIN { printf "%d", (new - old) * 1e6 / old }'; }

# The same as a percentage.
percent() { awk -v new="$1" -v old="$2" 'BEGIN { printf "%+.2f %%", (new - old) * 100 / old }'; }

read -r instructions calls < <(count)
read -r instructions_again calls_again < <(count)
[ "${instructions:-0}" -gt 0 ] || {
    echo "error: nothing was counted: is there a function $COUNTED in $program?" >&2
    exit 1
}
repeats() {
    local difference
    difference=$(ppm "$1" "$2")
    [ "${difference#-}" -le "$REPEAT_PPM_MAX" ]
}
if ! repeats "$instructions" "$instructions_again" || ! repeats "$calls" "$calls_again"; then
    echo "error: two runs differ: $instructions and $instructions_again instructions," \
        "$calls and $calls_again calls of the C library" >&2
    exit 1
fi
datagrams=$(sed -n 's/.*"datagrams_sent":\([0-9]*\).*/\1/p' "$folder/output")
toolchain=$(rustc --version)
echo "instructions   $instructions ($((instructions / datagrams)) per datagram, $datagrams datagrams)"
echo "library calls  $calls"
echo "toolchain      $toolchain"

if [ -n "$is_update" ]; then
    cat >"$COMMITTED" <<END
# Instructions of the relay's fan-out: scripts/count-instructions.sh --update
instructions $instructions
library_calls $calls
toolchain $toolchain
END
    echo "written to $COMMITTED"
    exit
fi

[ -e "$COMMITTED" ] || {
    echo "error: no $COMMITTED: write it with --update" >&2
    exit 1
}
committed() { sed -n "s/^$1 //p" "$COMMITTED"; }
if [ "$(committed toolchain)" != "$toolchain" ]; then
    echo "note: the committed count is that of $(committed toolchain)"
fi
failed=0
# Compares the count $2 with the committed one of the name $1.
compare() {
    local old change
    old=$(committed "$1")
    [ -n "$old" ] || {
        echo "error: no $1 in $COMMITTED" >&2
        exit 1
    }
    change=$(ppm "$2" "$old")
    if [ "$change" -gt 20000 ]; then
        echo "FAIL: $1 $(percent "$2" "$old") against $old, more than 2 % above"
        failed=1
    elif [ "$change" -lt -20000 ]; then
        echo "$1 $(percent "$2" "$old") against $old: well done; keep it with scripts/count-instructions.sh --update"
    else
        echo "$1 $(percent "$2" "$old") against $old"
    fi
}
compare instructions "$instructions"
compare library_calls "$calls"
exit $failed
