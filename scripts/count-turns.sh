#!/usr/bin/env bash
# Counts the instructions of the relay's longest turn after one hostile packet, in each scene of crates/counted/program/turns.
#
# A turn is the shortest that a host runs: between two looks at the clock, it passes on a few events, or one that many packets
# answer. A host continues for half a millisecond, or 1,000,000 instructions, before it sends.
#
# All instructions, those of the C library too, have a bound: 10,000,000, which take 5 ms at 2 * 10^9 a second. Where one event
# concerns many subscribers, it is 25,000 for each of them.
#
# The program's own instructions are compared with the committed counts: more than 2 % above fails. Two runs differ by 0.05 %.
# Those of the C library do not count there, because its allocator depends on memory addresses: where an object of 8 MiB
# displaces 10,000 others, all instructions are 2.1 to 2.9 million, and the program's own always 1,379,748.
#
# scripts/count-turns.sh [--update] [--program FILE] [SCENES]
#
# --update   write the counts into crates/counted/turns.instructions
# --program  the program, instead of the one that `make instructions` builds
# SCENES     a group of scenes, such as cache; default: all of them
set -euo pipefail
cd "$(dirname "$0")/.."

COUNTED=weir_counted::turns::stage::counted_turn
FILE=crates/counted/turns.instructions
# Instructions of a turn, and those for each of many subscribers.
TURN_MAX=10000000
UNIT_MAX=25000

is_update='' program=target/release/weir-counted scenes=()
while [ $# -gt 0 ]; do
    case $1 in
    --update) is_update=yes ;;
    --program)
        program=$2
        shift
        ;;
    -*)
        echo "error: unknown option $1" >&2
        exit 2
        ;;
    *) scenes+=("$1") ;;
    esac
    shift
done
[ -x "$program" ] || {
    echo "error: no program at $program: \`make instructions\` builds it" >&2
    exit 2
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Each counted call writes a profile of its own, in order.
valgrind --tool=callgrind --callgrind-out-file="$folder/profile" --toggle-collect="$COUNTED" \
    --dump-after="$COUNTED" "$program" turns "${scenes[@]}" >"$folder/scenes" 2>"$folder/log" || {
    cat "$folder/scenes" "$folder/log" >&2
    echo "error: the run of $program under callgrind failed" >&2
    exit 1
}

# Prints the instructions of a profile: all of them, and the program's own. A profile writes a name once as "(number) name", and
# afterwards as "(number)". The line after "calls=" is the cost of what was called, which stands elsewhere.
sum_up() {
    awk '
        /^ob=/ {
            id = substr($0, 4)
            sub(/\).*/, "", id)
            if (index($0, ") ")) is_library[id] = /\.so(\.|$)/
            is_here_library = is_library[id]
            next
        }
        /^cob=/ {
            id = substr($0, 5)
            sub(/\).*/, "", id)
            if (index($0, ") ")) is_library[id] = /\.so(\.|$)/
            next
        }
        /^calls=/ { is_callee_cost = 1; next }
        /^[0-9+*-]/ {
            if (!is_callee_cost) all += $2
            if (!is_callee_cost && !is_here_library) own += $2
            is_callee_cost = 0
        }
        END { printf "%d %d\n", all, own }' "$1"
}

# Writes the longest turn of each scene: name, own instructions, units, all instructions.
part=0
while read -r scene turns units; do
    longest=0 longest_own=0
    for ((turn = 0; turn < turns; turn++)); do
        part=$((part + 1))
        read -r all own < <(sum_up "$folder/profile.$part")
        [ "$all" -le "$longest" ] || longest=$all
        [ "$own" -le "$longest_own" ] || longest_own=$own
    done
    echo "$scene $longest_own $units $longest"
done < <(sed 's/.*"scene":"\([^"]*\)","turns":\([0-9]*\),"units":\([0-9]*\).*/\1 \2 \3/' "$folder/scenes") >"$folder/counts"
[ ! -e "$folder/profile.$((part + 1))" ] || {
    echo "error: more turns were counted than the $part that the scenes name" >&2
    exit 1
}

if [ -n "$is_update" ]; then
    {
        echo "# The program's own instructions of the longest turn in each scene, and for how many subscribers: scripts/count-turns.sh --update"
        awk '{ print $1, $2, $3 }' "$folder/counts"
        echo "toolchain $(rustc --version)"
    } >"$FILE"
    echo "written to $FILE"
fi
awk -v turn_max="$TURN_MAX" -v unit_max="$UNIT_MAX" '
    FILENAME == ARGV[1] { if ($1 != "#" && $1 != "toolchain") committed[$1] = $2; next }
    {
        max = $3 > 1 ? unit_max * $3 : turn_max
        each = $3 > 1 ? sprintf(" (%d for each of %d)", $4 / $3, $3) : ""
        verdict = ""
        slack = 0.02 * committed[$1]
        if ($4 > max) verdict = sprintf("FAIL: more than %d", max)
        else if (!($1 in committed)) verdict = "FAIL: no count is committed: write it with --update"
        else if ($2 > committed[$1] + slack) verdict = sprintf("FAIL: own more than %d above %d", slack, committed[$1])
        else if ($2 < committed[$1] - slack) verdict = sprintf("well done, own %d before: keep it with --update", committed[$1])
        printf "%-50s %10d, own %10d%s %s\n", $1, $4, $2, each, verdict
        if (verdict ~ /^FAIL/) failed = 1
    }
    END { exit failed }' "$FILE" "$folder/counts"
