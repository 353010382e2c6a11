#!/usr/bin/env bash
# Counts the instructions of the relay's longest turn after one hostile packet, in each scene of crates/relay/examples/turns,
# and compares them with the committed counts: more than 10 % and 250,000 above fails, or 35 % of fewer than a million. So does a turn of more than 10,000,000
# instructions, which take 5 ms at 2 * 10^9 a second. In a scene of many subscribers or notifications, that bound is 25,000
# for each of them.
#
# scripts/count-turns.sh [--update] [--program FILE] [SCENES]
#
# --update   write the counts into crates/relay/benches/turns.instructions
# --program  the program, instead of the one that `make instructions` builds
# SCENES     a group of scenes, such as cache; default: all of them
#
# All instructions are counted, those of the C library too. So two runs differ, by up to 28 % in the shortest turns.
set -euo pipefail
cd "$(dirname "$0")/.."

COUNTED=turns::stage::counted_turn
FILE=crates/relay/benches/turns.instructions
# Instructions of a turn, and those for each of many subscribers.
TURN_MAX=10000000
UNIT_MAX=25000

is_update='' program=target/release/examples/turns scenes=()
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
    --dump-after="$COUNTED" "$program" "${scenes[@]}" >"$folder/scenes" 2>"$folder/log" || {
    cat "$folder/scenes" "$folder/log" >&2
    echo "error: the run of $program under callgrind failed" >&2
    exit 1
}

# Writes the longest turn of each scene: name, instructions, units, turns.
part=0
while read -r scene turns units; do
    longest=0
    for ((turn = 0; turn < turns; turn++)); do
        part=$((part + 1))
        instructions=$(sed -n 's/^totals: //p' "$folder/profile.$part")
        [ "$instructions" -le "$longest" ] || longest=$instructions
    done
    echo "$scene $longest $units $turns"
done < <(sed 's/.*"scene":"\([^"]*\)","turns":\([0-9]*\),"units":\([0-9]*\).*/\1 \2 \3/' "$folder/scenes") >"$folder/counts"
[ ! -e "$folder/profile.$((part + 1))" ] || {
    echo "error: more turns were counted than the $part that the scenes name" >&2
    exit 1
}

if [ -n "$is_update" ]; then
    {
        echo "# Instructions of the longest turn in each scene, and for how many subscribers: scripts/count-turns.sh --update"
        awk '{ print $1, $2, $3 }' "$folder/counts"
        echo "toolchain $(rustc --version)"
    } >"$FILE"
    echo "written to $FILE"
fi
awk -v turn_max="$TURN_MAX" -v unit_max="$UNIT_MAX" '
    FILENAME == ARGV[1] { if ($1 != "#" && $1 != "toolchain") committed[$1] = $2; next }
    {
        max = $3 > 1 ? unit_max * $3 : turn_max
        each = $3 > 1 ? sprintf(" (%d for each of %d)", $2 / $3, $3) : ""
        verdict = ""
        slack = 0.1 * committed[$1] + 0.25 * (committed[$1] < 1000000 ? committed[$1] : 1000000)
        if ($2 > max) verdict = sprintf("FAIL: more than %d", max)
        else if (!($1 in committed)) verdict = "FAIL: no count is committed: write it with --update"
        else if ($2 > committed[$1] + slack) verdict = sprintf("FAIL: more than %d above %d", slack, committed[$1])
        else if ($2 < committed[$1] - slack) verdict = sprintf("well done, %d before: keep it with --update", committed[$1])
        printf "%-50s %10d%s %s\n", $1, $2, each, verdict
        if (verdict ~ /^FAIL/) failed = 1
    }
    END { exit failed }' "$FILE" "$folder/counts"
