#!/usr/bin/env bash
# Streams live through weir's relay, moq-relay-ietf and moq-relay, over WebTransport and an emulated link, in real time.
# Usage: scripts/live-relays.sh WEIR PEERS [ARGUMENT...]
#
# WEIR         the program
# PEERS        the folder with moq-relay-ietf and moq-relay; those that are missing are left out with a note
# ARGUMENT...  more arguments of `weir live lab`, such as --results docs/results.md
set -euo pipefail

weir=$1 peers=$2
shift 2

folder=$(mktemp -d)
started=()
finish() {
    for process in "${started[@]}"; do
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    rm -rf "$folder"
}
trap finish EXIT

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 13 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -addext basicConstraints=CA:FALSE \
    -keyout "$folder/key.pem" -out "$folder/cert.pem" 2>"$folder/openssl.log"

urls=()
# Starts the relay called $1, which listens on port $2, and waits until it does. The rest is its command.
start() {
    local name=$1 port=$2 entry deadline=$((SECONDS + 10))
    shift 2
    if ! command -v "$1" >/dev/null; then
        echo "left out: there is no $1" >&2
        return
    fi
    "$@" >"$folder/$port.log" 2>&1 &
    started+=($!)
    # In hexadecimal, as in the table of UDP sockets.
    entry=$(printf '0100007F:%04X' "$port")
    until grep -q "$entry" /proc/net/udp; do
        if ! kill -0 "${started[-1]}" 2>/dev/null || [ $SECONDS -ge $deadline ]; then
            echo "$1 does not listen: $(tail -n 1 "$folder/$port.log")" >&2
            exit 1
        fi
        sleep 0.1
    done
    urls+=("$name=https://127.0.0.1:$port/")
}
start weir 15441 "$weir" relay --listen 127.0.0.1:15441 --cert "$folder/cert.pem" --key "$folder/key.pem"
start moq-relay 15442 "$peers/moq-relay" --listen 127.0.0.1:15442 --listen-tls-cert "$folder/cert.pem" \
    --listen-tls-key "$folder/key.pem" --auth-public '**'
start moq-relay-ietf 15443 "$peers/moq-relay-ietf" --bind 127.0.0.1:15443 --tls-cert "$folder/cert.pem" --tls-key "$folder/key.pem"

relays=$(IFS=,; echo "${urls[*]}")
"$weir" live lab --net --source ffmpeg --relay "$relays" --strategies weir --profiles 500k,SPIKE,CASCADE,INTRA_CASCADE "$@"
