#!/usr/bin/env bash
# A relay for hours: subscribers that stay, and publishers and subscribers that come and go all the while. Samples the
# relay's memory, file descriptors and timers every 10 s.
#
# scripts/soak.sh WEIR [--minutes N] [--subscribers N] [--results FILE]
#
# WEIR           the program
# --subscribers  those that stay: 300 of them receive 10^8 objects in two hours
# --results      write the section `soak` of this page
#
# Fails if an object is lost, if those who stay do not stay to the end, or if a run of those who come and go fails; one in a
# hundred may be invalid, because the client was late. In a run of an hour or longer, it also fails if resident memory grows
# by more than 1 MB an hour after the first quarter, or if file descriptors or timers grow. Needs python3 and curl.
set -euo pipefail
cd "$(dirname "$0")/.."

weir=$1
shift
minutes=120 subscribers=300 results=''
while [ $# -gt 0 ]; do
    case $1 in
    --minutes) minutes=$2 ;;
    --subscribers) subscribers=$2 ;;
    --results) results=$2 ;;
    *) echo "error: unknown option $1" >&2 && exit 2 ;;
    esac
    shift 2
done

LISTEN=127.0.0.1:15490 ADMIN=127.0.0.1:15491
folder=$(mktemp -d) started=()
finish() {
    for process in "${started[@]}"; do
        kill "$process" 2>/dev/null || true
    done
    wait
    rm -rf "$folder"
}
trap finish EXIT

# Lets 40 subscribers join a publisher, receive for three seconds, and leave, again and again until it is ended.
come_and_go() {
    local bench=''
    trap 'kill "$bench" 2>/dev/null; exit' TERM
    while true; do
        "$weir" bench profiles/audio-short.ini --relay "moqt://$LISTEN" --insecure --subscribers 40 --instance 1 \
            --slo loss=0,failed=0 >"$folder/visit.txt" 2>&1 &
        bench=$!
        wait "$bench" || cp "$folder/visit.txt" "$folder/failed.$SECONDS.txt"
        echo >>"$folder/visits"
    done
}

# Prints resident memory, file descriptors, timers, objects, sessions and heap every 10 s.
sample() {
    while true; do
        curl --silent --max-time 5 "http://$ADMIN/metrics" | awk -v seconds="$SECONDS" '
            { values[$1] = $2 }
            END {
                print seconds, values["process_resident_memory_bytes"] + 0, values["process_open_fds"] + 0,
                    values["weir_relay_timers"] + 0, values["weir_relay_datagrams_sent_total"] + 0,
                    values["weir_relay_sessions_total"] + 0, values["weir_heap_bytes"] + 0
            }'
        sleep 10
    done
}

# As in packaging/weir-relay.service: otherwise khugepaged lets resident memory grow, though the heap does not.
MIMALLOC_ALLOW_THP=0 "$weir" relay --listen "$LISTEN" --admin "$ADMIN" --cores 0 >"$folder/relay.txt" 2>"$folder/relay.log" &
relay=$!
started+=("$relay")
deadline=$((SECONDS + 20))
until [ -s "$folder/relay.txt" ]; do
    [ $SECONDS -lt $deadline ] || { cat "$folder/relay.log" >&2 && echo "error: the relay does not listen" >&2 && exit 1; }
    sleep 0.1
done
come_and_go &
started+=("$!")
sample >"$folder/samples" &
started+=("$!")
began=$SECONDS
"$weir" bench profiles/audio.ini --relay "moqt://$LISTEN" --relay-pid "$relay" --insecure --subscribers "$subscribers" \
    --seconds $((minutes * 60)) --slo loss=0,failed=0 --json "$folder/bench.json" >"$folder/bench.txt" 2>&1 || true
echo $((SECONDS - began)) >"$folder/seconds"
[ -e "$folder/bench.json" ] || { cat "$folder/bench.txt" >&2 && echo "error: nothing was measured" >&2 && exit 1; }
kill -0 "$relay" 2>/dev/null || { tail -n 3 "$folder/relay.log" >&2 && echo "FAIL: the relay ended" >&2 && exit 1; }
python3 scripts/soak.py "$folder" "$minutes" "$subscribers" >"$folder/section.md" || code=$?
cat "$folder/section.md"
[ -z "$results" ] || scripts/write-section.sh "$results" soak <"$folder/section.md"
exit "${code:-0}"
