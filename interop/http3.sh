#!/usr/bin/env bash
# Tests other HTTP/3 clients with weir's server, and weir's load client with other servers. Prints a Markdown table.
# Fails if a row fails. (Chromium with weir's server: web/browser/http3.test.js, part of `make test-web`.)
#
# interop/http3.sh --weir FILE --peers FOLDER [--output FOLDER]
#
# --weir FILE      the program
# --peers FOLDER   the folder of tquic_client, tquic_server and caddy; those of ngtcp2 are found by PATH (Debian:
#                  ngtcp2-client, ngtcp2-server); the table names missing programs
# --output FOLDER  for logs, certificate, fetched files, and the table as http3.md (target/interop)
set -euo pipefail
cd "$(dirname "$0")/.."
. interop/programs.sh

RUN_SECONDS_MAX=30
REQUESTS=200
SIZES="1k 15k 50k"

read_options "$@"
PATH="$(cd "$peers" && pwd):$PATH"
output=$output/http3
rm -rf "$output"
mkdir -p "$output/root"
output=$(cd "$output" && pwd)
for size in $SIZES; do
    head -c $((${size%k} * 1024)) /dev/urandom >"$output/root/$size"
done
certificate

ours=$("$weir" --version)

# Prints why the files downloaded into the folder $1 are wrong; empty if they are right.
differs() {
    local size
    for size in $SIZES; do
        cmp -s "$1/$size" "$output/root/$size" || {
            echo "$size is not as it was served"
            return
        }
    done
}

"$weir" h3 serve --listen 127.0.0.1:0 --cert "$output/cert.pem" --key "$output/key.pem" --root "$output/root" \
    >"$output/serve.json" 2>"$output/serve.log" &
processes+=($!)
address='' deadline=$((SECONDS + READY_SECONDS_MAX))
while [ -z "$address" ]; do
    kill -0 "${processes[0]}" 2>/dev/null || die "the server ended: $(tail -n 3 "$output/serve.log")"
    [ $SECONDS -lt $deadline ] || die "the server did not say where it listens"
    sleep 0.05
    address=$(sed -n 's/.*"listening":"\([^"]*\)".*/\1/p' "$output/serve.json")
done
urls=()
for size in $SIZES; do urls+=("https://localhost:${address##*:}/$size"); done

if command -v tquic_client >/dev/null; then
    failure=''
    timeout $RUN_SECONDS_MAX tquic_client --connect-to "$address" --alpn h3 --max-requests-per-conn 0 --max-concurrent-requests 10 \
        --total-requests-per-thread $REQUESTS --log-level ERROR "${urls[@]}" >"$output/tquic_client.log" 2>&1 || failure="exit code $?"
    grep -q "success $REQUESTS\$" "$output/tquic_client.log" || failure=${failure:-$(tail -n 1 "$output/tquic_client.log")}
    # It begins one request more than it was told, with the first URL again, and truncates the file of that URL.
    timeout $RUN_SECONDS_MAX tquic_client --connect-to "$address" --alpn h3 --max-requests-per-conn 0 --total-requests-per-thread 1 \
        --dump-dir "$output/tquic" --log-level ERROR "${urls[0]%/*}/5k" "${urls[@]}" >>"$output/tquic_client.log" 2>&1 || failure="exit code $?"
    row "tquic_$(tquic_client --version)" "$ours" "$REQUESTS requests on one connection, ten at once; three files" \
        "${failure:-$(differs "$output/tquic")}" "every file intact"
else
    missing tquic_client "$ours" "" tquic_client
fi
if command -v gtlsclient >/dev/null; then
    failure=''
    mkdir "$output/gtls"
    timeout $RUN_SECONDS_MAX gtlsclient -q --exit-on-all-streams-close --download "$output/gtls" 127.0.0.1 "${address##*:}" "${urls[@]}" \
        >"$output/gtlsclient.log" 2>&1 || failure="exit code $?"
    row "gtlsclient $(dpkg-query -W -f '${Version}' ngtcp2-client 2>/dev/null)" "$ours" "three files" "${failure:-$(differs "$output/gtls")}" "every file intact"
else
    missing gtlsclient "$ours" "" gtlsclient
fi
end_all

# Tests weir's client with the server that the rest of the line starts on port $port. The name comes first.
port=$((20000 + RANDOM % 20000))
at_theirs() {
    local name=$1 failure='' log=$output/bench-$2.log note=''
    shift
    if ! command -v "$1" >/dev/null; then
        missing "$ours" "$name" "" "$1"
        return
    fi
    "$@" >"$output/$1.log" 2>&1 &
    processes+=($!)
    sleep 1
    timeout $RUN_SECONDS_MAX "$weir" h3 bench "https://localhost:$port/15k" --connect "127.0.0.1:$port" --insecure --duration 2s --max-concurrent-conns 5 \
        --max-concurrent-requests 5 --json "$output/bench-$1.json" >"$log" 2>&1 || failure="exit code $?: $(grep . "$log" | tail -n 1)"
    if [ -z "$failure" ]; then
        note="$(counted "$output/bench-$1.json" successes) requests of 15 KB"
        [ "$(counted "$output/bench-$1.json" failed)" = 0 ] || failure="$(counted "$output/bench-$1.json" failed) requests failed"
    fi
    end_all
    row "$ours" "$name" "2 s, 5 connections with 5 requests at once" "$failure" "$note"
    port=$((port + 1))
}
# Prints a number of the requests in a report.
counted() {
    sed -n "/^ *\"requests\": {/,/}/s/^ *\"$2\": \([0-9]*\),\{0,1\}$/\1/p" "$1" | head -n 1
}
at_theirs "tquic_server" tquic_server -l "127.0.0.1:$port" --log-level OFF --root "$output/root" -c "$output/cert.pem" -k "$output/key.pem"
at_theirs "gtlsserver $(dpkg-query -W -f '${Version}' ngtcp2-server 2>/dev/null)" gtlsserver -q -d "$output/root" 127.0.0.1 "$port" "$output/key.pem" "$output/cert.pem"

{
    echo '| client | server | how | result |'
    echo '|---|---|---|---|'
    printf '%s\n' "${rows[@]}"
} >"$output/../http3.md"
[ "$failed" -eq 0 ] || {
    echo "$failed rows failed; the output is in $output"
    exit 1
}
