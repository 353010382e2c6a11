#!/usr/bin/env bash
# Runs the cases of moq-test-client, another project's conformance client, with weir's relay over raw QUIC and over
# WebTransport. Prints a table for each. Fails if a required case fails.
#
# interop/moq-test-client.sh --client FILE (--weir FILE | --relay URL) [--output FOLDER]
#
# --client FILE    the program moq-test-client
# --weir FILE      the program weir, started as a relay on a free port
# --relay URL      another relay that already runs, moqt://127.0.0.1:4443 or https://127.0.0.1:4443; only
#                  the transport that the URL names is used
# --output FOLDER  where each case's output goes (target/interop), and the table as moq-test-client.md
set -euo pipefail

# The cases that must pass. The client's other cases are run and shown.
REQUIRED=(
    setup-only
    publish-namespace-only
    subscribe-error
    publish-namespace-subscribe
    subscribe-before-publish-namespace
    publish-namespace-done
    publish-track-only
    publish-track-subscribe
    rendezvous-timeout
    data-subgroup-basic
    moq-test-subgroup-per-group-eog
    moq-test-subgroup-per-object
    moq-test-two-subgroups-eog
    moq-test-datagram
    moq-test-datagram-eog
    moq-test-extensions
    moq-test-increments
    moq-test-forward-zero
)
CASE_SECONDS_MAX=30
READY_SECONDS_MAX=10

die() {
    echo "error: $1" >&2
    exit 2
}

client='' weir='' relay='' output=target/interop
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || die "$1 needs a value"
    case $1 in
    --client) client=$2 ;;
    --weir) weir=$2 ;;
    --relay) relay=$2 ;;
    --output) output=$2 ;;
    *) die "unknown option $1" ;;
    esac
    shift 2
done
[ -x "$client" ] || die "no program moq-test-client at '$client': \`make interop\` installs it"
[ -n "$relay" ] || [ -x "$weir" ] || die "no program at '$weir', and no relay named with --relay"
mkdir -p "$output"

relay_process=''
stop_relay() {
    [ -n "$relay_process" ] || return 0
    local process=$relay_process
    relay_process=''
    kill -TERM "$process" 2>/dev/null || true
    wait "$process"
}
trap 'stop_relay || true' EXIT

# Starts weir's relay and sets `relays` to its URLs, once the relay has printed them.
start_relay() {
    "$weir" relay --listen 127.0.0.1:0 >"$output/relay.json" 2>"$output/relay.log" &
    relay_process=$!
    local address='' deadline=$((SECONDS + READY_SECONDS_MAX))
    while [ -z "$address" ]; do
        kill -0 "$relay_process" 2>/dev/null || die "the relay ended: $(tail -n 3 "$output/relay.log")"
        [ $SECONDS -lt $deadline ] || die "the relay did not say where it listens"
        sleep 0.05
        address=$(sed -n 's/.*"listening":"\([^"]*\)".*/\1/p' "$output/relay.json")
    done
    relays=("moqt://$address" "https://$address")
}
if [ -n "$relay" ]; then relays=("$relay"); else start_relay; fi

is_required() {
    local name
    for name in "${REQUIRED[@]}"; do
        [ "$name" = "$1" ] && return 0
    done
    return 1
}

# Runs one case and prints its row. Fails if the case failed. Exit codes of the client: 0 passed, 1 failed, 127 unknown
# case. 124 means that the time limit was exceeded.
run_case() {
    local name=$1 log=$output/${relay%%:*}-$1.tap start=$SECONDS code=0 result
    timeout "$CASE_SECONDS_MAX" "$client" --relay "$relay" --test "$name" --tls-disable-verify \
        >"$log" 2>&1 || code=$?
    case $code in
    0) result=pass ;;
    124) result="no end within $CASE_SECONDS_MAX s" ;;
    127) result='unknown to the client' ;;
    *) result="FAIL: $(reason "$log")" ;;
    esac
    printf '%-36s %-9s %3d s  %s\n' "$name" "$2" $((SECONDS - start)) "$result"
    results["$relay $name"]=$result
    [ "$code" -eq 0 ]
}

# Prints the client's reason for a failure, in one short line.
reason() {
    local line
    line=$(sed -n 's/^ *message: *//p' "$1" | head -n 1)
    [ -n "$line" ] || line=$(grep -v '^ *$' "$1" | tail -n 1)
    printf '%.90s' "$line"
}

failed=0
declare -A results
for relay in "${relays[@]}"; do
    echo "$("$client" --version 2>/dev/null || echo moq-test-client) against $relay"
    printf '%-36s %-9s %5s  %s\n' case required time result
    for name in "${REQUIRED[@]}"; do
        run_case "$name" yes || failed=$((failed + 1))
    done
    for name in $("$client" --list); do
        is_required "$name" || run_case "$name" no || true
    done
done

{
    printf '| case |'
    printf ' %s |' "${relays[@]%%:*}"
    printf '\n|---|'
    printf -- '---|%.0s' "${relays[@]}"
    printf '\n'
    for name in $("$client" --list); do
        printf '| `%s` |' "$name"
        for relay in "${relays[@]}"; do
            printf ' %s |' "$(sed 's/|/\\|/g' <<<"${results[$relay $name]:-not run}")"
        done
        printf '\n'
    done
} >"$output/moq-test-client.md"

if [ -n "$relay_process" ] && ! stop_relay; then
    echo "the relay did not end cleanly: $(tail -n 3 "$output/relay.log")"
    failed=$((failed + 1))
fi
if [ "$failed" -gt 0 ]; then
    echo "$failed of $((${#REQUIRED[@]} * ${#relays[@]})) required cases failed; the output is in $output"
    exit 1
fi
echo "all $((${#REQUIRED[@]} * ${#relays[@]})) required cases passed"
