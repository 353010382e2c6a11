#!/usr/bin/env bash
# Runs all cases of `weir probe` against weir's relay, moq-relay-ietf and moq-relay, in each draft that they speak and over both transports,
# and writes the comparison.
#
# usage: scripts/probe.sh WEIR PEERS [--messages COUNT] --results FILE
#
# WEIR   the program; PEERS: the folder with the other relays, of which those are probed that are there
set -euo pipefail

weir=$1 peers=$2
shift 2
messages=100000 results=
while [ $# -gt 0 ]; do
    case $1 in
    --messages) messages=$2 ;;
    --results) results=$2 ;;
    *) echo "probe.sh: unknown flag $1" >&2 && exit 2 ;;
    esac
    shift 2
done
[ -n "$results" ] || { echo "probe.sh: --results FILE is missing" >&2 && exit 2; }

output=target/probe
mkdir -p "$output"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 13 \
    -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE \
    -keyout "$output/key.pem" -out "$output/cert.pem" 2>"$output/openssl.log"

# The relays that run, by process, and the probes beside each other.
running=() probes=()
trap '[ ${#running[@]} -eq 0 ] || kill "${running[@]}" 2>/dev/null || true' EXIT

# The drafts of a relay that have cases, newest first.
drafts() {
    case $1 in
    moq-relay-ietf) echo 18 ;;
    *) echo 22 18 ;;
    esac
}

# Starts a relay on a port of loopback, with its output in a file, and waits until it listens.
start() { # NAME PORT LOG
    local name=$1 address=127.0.0.1:$2 log=$3
    local entry
    entry=$(printf '0100007F:%04X' "$2")
    case $name in
    weir)
        "$weir" relay --listen "$address" --cert "$output/cert.pem" --key "$output/key.pem" >"$log" 2>&1 &
        ;;
    moq-relay-ietf)
        "$peers/moq-relay-ietf" --bind "$address" --tls-cert "$output/cert.pem" --tls-key "$output/key.pem" >"$log" 2>&1 &
        ;;
    moq-relay)
        "$peers/moq-relay" --listen "$address" --listen-tls-cert "$output/cert.pem" --listen-tls-key "$output/key.pem" \
            --auth-public '**' >"$log" 2>&1 &
        ;;
    esac
    running+=("$!")
    local deadline=$((SECONDS + 30))
    until grep -q "$entry" /proc/net/udp; do
        kill -0 "${running[-1]}" 2>/dev/null || { echo "probe.sh: $name ended: $(tail -n 3 "$log")" >&2 && exit 1; }
        [ $SECONDS -lt $deadline ] || { echo "probe.sh: $name does not listen" >&2 && exit 1; }
        sleep 0.05
    done
}

# Waits for the probes that run, and ends their relays. A relay that fails cases is a result.
finish() {
    local probe status
    for probe in "${probes[@]}"; do
        status=0
        wait "$probe" || status=$?
        [ $status -le 1 ] || exit $status
    done
    kill "${running[@]}" 2>/dev/null || true
    wait "${running[@]}" 2>/dev/null || true
    running=() probes=()
}

# The probes of weir's relay run alone. Those of another relay run side by side: most of their time, they wait for what does not come.
reports=() port=15460
for name in weir moq-relay-ietf moq-relay; do
    [ "$name" = weir ] || [ -x "$peers/$name" ] || continue
    for draft in $(drafts "$name"); do
        for scheme in moqt https; do
            port=$((port + 1))
            run=$output/$name-$draft-$scheme
            start "$name" "$port" "$run.log"
            "$weir" probe "$scheme://127.0.0.1:$port" --draft "$draft" --insecure --patience 3s --messages "$messages" \
                --relay-pid "${running[-1]}" --name "$name" --json "$run.json" --html "$run.html" >"$run.tap" &
            probes+=("$!")
            reports+=("$run.json")
            [ "$name" != weir ] || finish
        done
    done
    [ ${#probes[@]} -eq 0 ] || finish
done
"$weir" probe compare "${reports[@]}" --results "$results"
