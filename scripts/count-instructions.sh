#!/usr/bin/env bash
# Counts the instructions of the most frequent operations under callgrind, and compares them with the committed counts:
# more than 2 % above fails, more than 2 % below asks for an update.
#
# scripts/count-instructions.sh [--update] [NAME...]
#
# --update  write the counts into crates/counted/NAME.instructions
# NAME      fanout, h3-client, h3-server; default: all of them
#
# Only the program's own instructions are counted. Those of the C library depend on memory addresses, so its calls
# (allocations, copies) are counted instead. Two runs of the fan-out differ by a few parts per million. Two runs of the
# HTTP/3 server differ by up to 200 parts per million, for an unknown reason; the random values of TLS differ in both.
set -euo pipefail
cd "$(dirname "$0")/.."

# Each name with the operation, the function whose instructions count, including its callees, and the divisor.
declare -A COUNTED=(
    [fanout]='fanout fanout::Counted::fan_out datagrams_sent'
    [h3-client]='requests requests::ask requests'
    [h3-server]='requests requests::serve requests'
)
ALL='fanout h3-client h3-server'
PROGRAM=target/release/weir-counted
# The largest difference between two equal runs, in parts per million. Beyond it, the run is invalid.
REPEAT_PPM_MAX=500

is_update='' names=()
for argument in "$@"; do
    case $argument in
    --update) is_update=yes ;;
    -*)
        echo "error: unknown option $argument" >&2
        exit 2
        ;;
    *)
        [ -n "${COUNTED[$argument]:-}" ] || {
            echo "error: nothing is called $argument here: expected one of $ALL" >&2
            exit 2
        }
        names+=("$argument")
        ;;
    esac
done
[ ${#names[@]} -gt 0 ] || read -ra names <<<"$ALL"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Sums up a profile: the instructions of the program's own code, and the calls of the C library. A profile writes a name
# once as "(number) name", and afterwards as "(number)".
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

# Runs the operation $1 and counts in the function $2.
count() {
    valgrind --tool=callgrind --callgrind-out-file="$folder/profile" \
        --toggle-collect="weir_counted::$2" "$PROGRAM" "$1" >"$folder/output" 2>"$folder/log" || {
        cat "$folder/output" "$folder/log" >&2
        echo "error: the run of $1 under callgrind failed" >&2
        return 1
    }
    sum_up "$folder/profile"
}

# Prints how much larger $1 is than $2, in parts per million.
ppm() { awk -v new="$1" -v old="$2" 'BEGIN { printf "%d", (new - old) * 1e6 / old }'; }

# Prints the same as a percentage.
percent() { awk -v new="$1" -v old="$2" 'BEGIN { printf "%+.2f %%", (new - old) * 100 / old }'; }

repeats() {
    local difference
    difference=$(ppm "$1" "$2")
    [ "${difference#-}" -le "$REPEAT_PPM_MAX" ]
}

# Prints the number $2 of the file $1.
committed() { sed -n "s/^$2 //p" "$1"; }

# Compares the count $3 of the name $2 with the file $1.
compare() {
    local old change
    old=$(committed "$1" "$2")
    [ -n "$old" ] || {
        echo "error: no $2 in $1" >&2
        exit 1
    }
    change=$(ppm "$3" "$old")
    if [ "$change" -gt 20000 ]; then
        echo "FAIL: $2 $(percent "$3" "$old") against $old, more than 2 % above"
        failed=1
    elif [ "$change" -lt -20000 ]; then
        echo "$2 $(percent "$3" "$old") against $old: well done; keep it with scripts/count-instructions.sh --update"
    else
        echo "$2 $(percent "$3" "$old") against $old"
    fi
}

toolchain=$(rustc --version)
failed=0
# Counts the operation $1, and compares.
check() {
    local file operation function unit instructions calls instructions_again calls_again units
    read -r operation function unit <<<"${COUNTED[$1]}"
    file=crates/counted/$1.instructions
    [ -x "$PROGRAM" ] || {
        echo "error: no program at $PROGRAM: \`make instructions\` builds it" >&2
        exit 2
    }
    read -r instructions calls < <(count "$operation" "$function")
    read -r instructions_again calls_again < <(count "$operation" "$function")
    [ "${instructions:-0}" -gt 0 ] || {
        echo "error: nothing was counted: is there a function $function in $PROGRAM?" >&2
        exit 1
    }
    if ! repeats "$instructions" "$instructions_again" || ! repeats "$calls" "$calls_again"; then
        echo "error: two runs differ: $instructions and $instructions_again instructions," \
            "$calls and $calls_again calls of the C library" >&2
        exit 1
    fi
    units=$(sed -n "s/.*\"$unit\":\([0-9]*\).*/\1/p" "$folder/output")
    echo "== $1"
    echo "instructions   $instructions ($((instructions / units)) for each of $units ${unit//_/ })"
    echo "library calls  $calls"

    if [ -n "$is_update" ]; then
        cat >"$file" <<FILE
# Instructions of $function: scripts/count-instructions.sh --update $1
instructions $instructions
library_calls $calls
toolchain $toolchain
FILE
        echo "written to $file"
        return
    fi
    [ -e "$file" ] || {
        echo "error: no $file: write it with --update" >&2
        exit 1
    }
    if [ "$(committed "$file" toolchain)" != "$toolchain" ]; then
        echo "note: the committed count is that of $(committed "$file" toolchain)"
    fi
    compare "$file" instructions "$instructions"
    compare "$file" library_calls "$calls"
}

for name in "${names[@]}"; do
    check "$name"
done
exit $failed
