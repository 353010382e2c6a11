#!/usr/bin/env bash
# The CPU cost of a delivered datagram in the relay, beside two references measured in the same minutes: the floor of
# the machine, and the QUIC engine alone. The load is audio (120 bytes every 20 ms) to many subscribers. Rounds are
# interleaved; each figure is the median over the rounds.
#
# scripts/cost.sh [--subscribers N] [--rounds N] [--seconds N] [--other NAME=COMMAND]
#
# --other  another relay, measured in each round too: a command that serves moqt://127.0.0.1:15443. In the command,
#          %cert% and %key% stand for the files of a certificate created for the run
set -euo pipefail
cd "$(dirname "$0")/.."

subscribers=500 rounds=5 seconds=12 other=''
while [ $# -gt 0 ]; do
    [ $# -gt 1 ] || {
        echo "error: $1: expected a value" >&2
        exit 2
    }
    case $1 in
    --subscribers) subscribers=$2 ;;
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --other) other=$2 ;;
    *)
        echo "error: unknown option $1" >&2
        exit 2
        ;;
    esac
    shift 2
done

CARGO=${CARGO:-cargo}
# The port of the other relay.
PORT=15443
weir=target/release/weir
folder=$(mktemp -d)
pid=''
trap 'if [ -n "$pid" ]; then kill "$pid" 2>/dev/null || true; fi; rm -rf "$folder"' EXIT

$CARGO build --release --locked --bin weir
$CARGO bench --locked -p weir-net --bench floor --bench engine --no-run

# Measures a relay with the name $1 and the options $2.
relay() {
    "$weir" bench profiles/audio.ini --subscribers "$subscribers" --seconds "$seconds" --json "$folder/run.json" "${@:2}" \
        >"$folder/run.txt" 2>&1 || {
        echo "note: $1: $(tail -n 1 "$folder/run.txt")"
    }
    [ -e "$folder/run.json" ] || {
        cat "$folder/run.txt" >&2
        echo "error: $1 could not be measured" >&2
        exit 1
    }
    mv "$folder/run.json" "$folder/$1.$round.json"
}

if [ -n "$other" ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
        -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$folder/key.pem" -out "$folder/cert.pem" 2>"$folder/openssl.txt"
    command=${other#*=}
    command=${command//%cert%/$folder/cert.pem}
    command=${command//%key%/$folder/key.pem}
fi
for round in $(seq "$rounds"); do
    echo "round $round of $rounds"
    $CARGO bench --quiet --locked -p weir-net --bench floor -- --json --rounds 1 >"$folder/floor.$round.json"
    $CARGO bench --quiet --locked -p weir-net --bench engine -- --json --connections "$subscribers" --seconds "$seconds" \
        >"$folder/engine.$round.json"
    relay weir
    if [ -n "$other" ]; then
        # Spaces separate the words of the command.
        # shellcheck disable=SC2086
        taskset -c 0 $command >"$folder/other.txt" 2>&1 &
        pid=$!
        sleep 1
        relay other --relay "moqt://127.0.0.1:$PORT" --relay-pid "$pid" --insecure
        kill "$pid"
        wait "$pid" 2>/dev/null || true
        pid=''
    fi
done

python3 - "$folder" "$rounds" "$subscribers" "${other%%=*}" <<'PYTHON'
import json, statistics, sys

folder, rounds, subscribers, other = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]

def read(name):
    return [json.load(open(f"{folder}/{name}.{number}.json")) for number in range(1, rounds + 1)]

floor = [one["floor_ns"] / 1000 for one in read("floor")]
engine = [one["engine_ns"] / 1000 for one in read("engine")]
rows = [("floor: one sendmmsg per 64 packets, one seal each", floor), ("engine and host, without a relay", engine)]
for name, file in [("weir", "weir"), (other, "other")]:
    if not name:
        continue
    runs = read(file)
    cost = [one["relay"]["cost"]["cpu_us_per_delivered_object"] for one in runs]
    rows.append((f"relay: {name}", cost))
    for one in runs:
        lost = sum(track["completion"]["lost_objects"]["sum"] for track in one["tracks"])
        if lost or not one["generator"]["healthy"]:
            print(f"note: {name}: a round lost {lost} objects, generator healthy: {one['generator']['healthy']}")
floors, engines = dict(rows)[rows[0][0]], dict(rows)[rows[1][0]]
weirs = rows[2][1]
print(f"\n{subscribers} subscribers, {rounds} rounds; µs CPU per delivered datagram\n")
print("| | median | range | ÷ floor | ÷ engine | ÷ weir |\n|---|---|---|---|---|---|")
for name, figures in rows:
    over = lambda bases: statistics.median(one / base for one, base in zip(figures, bases))
    print(f"| {name} | {statistics.median(figures):.2f} | {min(figures):.2f}–{max(figures):.2f} "
          f"| {over(floors):.1f} | {over(engines):.2f} | {over(weirs):.2f} |")
PYTHON
