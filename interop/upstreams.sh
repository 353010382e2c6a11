#!/usr/bin/env bash
# Tests chains of weir's relay and another one, with weir's publisher at one and its subscribers at the other: weir's relay with
# --upstream, and other relays that connect to weir's. Prints a Markdown table. Fails if a row fails.
#
# interop/upstreams.sh --weir FILE --peers FOLDER [--output FOLDER] [--results FILE]
#
# --weir FILE      the program
# --peers FOLDER   where moq-relay-ietf and moq-relay are; the table names missing programs
# --output FOLDER  for logs and certificate (target/interop)
# --results FILE   a page whose section `upstreams` is replaced by the table
set -euo pipefail
cd "$(dirname "$0")/.."
. interop/programs.sh

RUN_SECONDS_MAX=30
SUBSCRIBERS=5
DRAFTS=(22 21 20 19 18)
# The publisher's start delay in seconds, and when the subscribers come: moq-relay refuses tracks that nobody has announced to it.
START_DELAY=5
HEAD_START=2

read_options "$@"
profile=$output/late.ini
sed -e "s/^start_delay .*/start_delay = ${START_DELAY}000/" -e "s/^total_transmit_time .*/total_transmit_time = $((START_DELAY + 2))000/" interop/both.ini >"$profile"

# Tests a chain: a publisher at one URL, subscribers at another. Every subscription of both tracks must be good, and the stream track
# complete.
through() {
    local name=$1 how=$2 path=$3 from=$4 to=$5 draft=$6 reason='' note='' log
    log=$output/through-$(echo "$name $how $path" | tr -cs 'a-z0-9\n' -)
    local common=(--insecure --draft "$draft" --seed 1)
    timeout "$RUN_SECONDS_MAX" "$weir" bench "$profile" --relay "$from" "${common[@]}" --role publish --publish-flow namespace \
        >"$log-publisher.log" 2>&1 &
    local publisher=$!
    processes+=("$publisher")
    sleep "$HEAD_START"
    timeout "$RUN_SECONDS_MAX" "$weir" bench "$profile" --relay "$to" "${common[@]}" --role subscribe --subscribers "$SUBSCRIBERS" \
        >"$log.log" 2>&1 || true
    kill -INT "$publisher" 2>/dev/null || true
    wait "$publisher" 2>/dev/null || true
    local good lost
    good=$(grep -c "subscriptions *$SUBSCRIBERS good, 0 incomplete, 0 failed" "$log.log") || true
    # One line per track, in the profile's order. The last figure is the sum.
    mapfile -t lost < <(sed -n 's/^ *lost objects .* //p' "$log.log")
    if [ "$good" -ne 2 ] || [ "${lost[1]:-none}" != 0 ]; then
        reason=$(grep -E '^(held|broken|invalid|partial|empty): |^weir: ' "$log.log" | tail -n 1)
        reason=${reason:-no report}
    elif [ "${lost[0]}" != 0 ]; then
        note="${lost[0]} datagrams lost"
    fi
    row "$name" "$how" "$path" "$reason" "$note"
}

# Tests a stream of many groups through the chain in weir's player.
live_through() {
    local name=$1 how=$2 path=$3 from=$4 to=$5 relay=$6 frames shown reason='' log
    log=$output/live-through-$(echo "$name $how $path" | tr -cs 'a-z0-9\n' -)
    "$weir" live publish "$from" --insecure --preset "$relay" --input "$output/clip.mp4" --realtime >"$log-publisher.log" 2>&1 &
    local publisher=$!
    processes+=("$publisher")
    sleep "$HEAD_START"
    timeout "$RUN_SECONDS_MAX" "$weir" live play "$to" --insecure --patience 10s --time 8s >"$log.txt" 2>"$log.log" ||
        reason=$(tail -n 1 "$log.log")
    kill -INT "$publisher" 2>/dev/null || true
    wait "$publisher" 2>/dev/null || true
    frames=$(sed -n 's/^frames  *\([0-9]*\)$/\1/p' "$log.txt")
    shown=$(sed -n 's/^shown *\([0-9]*\).*/\1/p' "$log.txt")
    [ -n "$reason" ] || { [ "${frames:-0}" -gt 10 ] && [ "${shown:-0}" -ge 50 ]; } || reason="${frames:-no} frames, ${shown:-no} % shown"
    row "$name" "$how" "$path" "$reason" "$frames frames, $shown % shown"
}

# Tests both directions of a chain whose relays are at two URLs: that of the relay that connects, and that of the other.
both_ways() {
    local name=$1 how=$2 near=$3 far=$4 near_url=$5 far_url=$6 draft=$7 relay=$8
    through "$name" "$how" "weir bench → $far → $near → weir bench" "$far_url" "$near_url" "$draft"
    through "$name" "$how" "weir bench → $near → $far → weir bench" "$near_url" "$far_url" "$draft"
    if [ -s "$output/clip.mp4" ]; then
        live_through "$name" "$how" "weir live publish → $far → $near → weir live play" "$far_url" "$near_url" "$relay"
        live_through "$name" "$how" "weir live publish → $near → $far → weir live play" "$near_url" "$far_url" "$relay"
    fi
}

# weir's relay asks the other one.
ours_below() {
    local relay=$1 scheme=$2 draft=$3
    start "$relay" 15611
    local far=$address
    start weir 15612 --upstream "$scheme://$far" --set upstream.insecure=true --set "drafts=$draft"
    both_ways "$(version "$peers/$relay")" "$scheme, draft-$draft" "weir relay --upstream" "$relay" \
        "moqt://$address" "moqt://$far" "$draft" "$relay"
    end_all
}

# The other relay connects to weir's.
ours_above() {
    local relay=$1 scheme=$2 draft=$3
    if [ "$relay" = moq-relay-ietf ]; then
        impossible "$(version "$peers/$relay")" "$scheme, draft-$draft" "$relay --announce, weir relay" \
            "it announces, and answers no subscription ([why](#known-problems-of-other-programs))"
        return
    fi
    start weir 15613 --set "drafts=$draft"
    local far=$address
    start "$relay" 15614 --cluster-connect "$scheme://$far" --connect-tls-insecure --connect-version "moq-transport-$draft"
    both_ways "$(version "$peers/$relay")" "$scheme, draft-$draft" "$relay --cluster-connect" "weir relay" \
        "moqt://$address" "moqt://$far" "$draft" "$relay"
    end_all
}

certificate
if command -v ffmpeg >/dev/null; then
    ffmpeg -hide_banner -v error -y -f lavfi -i testsrc2=size=320x240:rate=25 -t 30 -c:v libx264 -preset ultrafast -tune zerolatency \
        -g 25 -pix_fmt yuv420p -f mp4 -movflags cmaf+frag_every_frame+empty_moov+default_base_moof "$output/clip.mp4"
fi
for relay in moq-relay-ietf moq-relay; do
    if [ ! -x "$peers/$relay" ]; then
        missing "$relay" "" "a chain of two relays" "$relay"
        continue
    fi
    # moq-relay-ietf speaks one draft.
    drafts=("${DRAFTS[@]}")
    [ "$relay" = moq-relay ] || drafts=(18)
    for draft in "${drafts[@]}"; do
        for scheme in moqt https; do
            ours_below "$relay" "$scheme" "$draft"
            ours_above "$relay" "$scheme" "$draft"
        done
    done
done

if [ -n "$results" ]; then
    {
        printf '%s\n' '| program | link | path of the objects | result |' '|---|---|---|---|' "${rows[@]}"
    } | scripts/write-section.sh "$results" upstreams
fi
[ "$failed" -eq 0 ] || {
    echo "$failed rows failed; the output is in $output"
    exit 1
}
