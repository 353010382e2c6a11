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

relay=
trap '[ -z "$relay" ] || kill "$relay" 2>/dev/null || true' EXIT

# The drafts of a relay that have cases, newest first.
drafts() {
    case $1 in
    moq-relay-ietf) echo 18 ;;
    *) echo 22 18 ;;
    esac
}

# Starts a relay on a port of loopback, and waits until it listens.
start() {
    local name=$1 address=127.0.0.1:$2
    local entry
    entry=$(printf '0100007F:%04X' "$2")
    case $name in
    weir)
        "$weir" relay --listen "$address" --cert "$output/cert.pem" --key "$output/key.pem" >"$output/$name.log" 2>&1 &
        ;;
    moq-relay-ietf)
        "$peers/moq-relay-ietf" --bind "$address" --tls-cert "$output/cert.pem" --tls-key "$output/key.pem" \
            >"$output/$name.log" 2>&1 &
        ;;
    moq-relay)
        "$peers/moq-relay" --listen "$address" --listen-tls-cert "$output/cert.pem" --listen-tls-key "$output/key.pem" \
            --auth-public '**' >"$output/$name.log" 2>&1 &
        ;;
    esac
    relay=$!
    local deadline=$((SECONDS + 30))
    until grep -q "$entry" /proc/net/udp; do
        kill -0 "$relay" 2>/dev/null || { echo "probe.sh: $name ended: $(tail -n 3 "$output/$name.log")" >&2 && exit 1; }
        [ $SECONDS -lt $deadline ] || { echo "probe.sh: $name does not listen" >&2 && exit 1; }
        sleep 0.05
    done
}

reports=() port=15460
for name in weir moq-relay-ietf moq-relay; do
    [ "$name" = weir ] || [ -x "$peers/$name" ] || continue
    for draft in $(drafts "$name"); do
        for scheme in moqt https; do
            port=$((port + 1))
            start "$name" "$port"
            run=$output/$name-$draft-$scheme
            status=0
            "$weir" probe "$scheme://127.0.0.1:$port" --draft "$draft" --insecure --patience 3s --messages "$messages" \
                --relay-pid "$relay" --name "$name" --json "$run.json" --html "$run.html" >"$run.tap" || status=$?
            # A relay that fails cases is a result.
            [ $status -le 1 ] || exit $status
            reports+=("$run.json")
            kill "$relay" 2>/dev/null || true
            wait "$relay" 2>/dev/null || true
            relay=
        done
    done
done
"$weir" probe compare "${reports[@]}" --results "$results"
