#!/usr/bin/env bash
# Streams live over a link that is too slow, in real time: ffmpeg, an origin, a relay, a link of RATE, a player. Prints
# what a viewer would have seen. Usage: scripts/live-demo.sh [WEIR [STRATEGY [RATE [SECONDS]]]]
set -euo pipefail

weir=${1:-target/release/weir}
strategy=${2:-weir}
rate=${3:-500k}
seconds=${4:-30}

case $strategy in
weir) congestion=delay ;;
*) congestion=cubic ;;
esac

folder=$(mktemp -d)
started=()
finish() {
    for process in "${started[@]}"; do
        kill "$process" 2>/dev/null || true
    done
    rm -rf "$folder"
}
trap finish EXIT

# Sets `address` to the address of the program started last, from the line of JSON that it writes to the file $1. $2 is
# its name for errors.
address_of() {
    local process=${started[-1]}
    address=
    for _ in $(seq 200); do
        if [[ -s $1 ]]; then
            address=$(sed -n '1s/.*"listening":"\([^"]*\)".*/\1/p' "$1")
            [[ -n $address ]] && return
        fi
        if ! kill -0 "$process" 2>/dev/null; then
            echo "$2 ended before it listened" >&2
            exit 1
        fi
        sleep 0.05
    done
    echo "$2 does not listen after 10 s" >&2
    exit 1
}

"$weir" relay --listen 127.0.0.1:0 --set "limits.quic.congestion=$congestion" >"$folder/relay" &
started+=($!)
address_of "$folder/relay" "the relay"
relay=$address

"$weir" link --to "$relay" --rate "$rate" --delay 20ms --queue 62500 >"$folder/link" &
link=$!
started+=("$link")
address_of "$folder/link" "the link"
behind_link=$address

ffmpeg -hide_banner -loglevel error -re -f lavfi \
    -i "life=s=320x180:r=24:mold=10:ratio=0.1:seed=7:death_color=#C83232:life_color=#00ff00,scale=1280:720" \
    -t "$seconds" -an -pix_fmt yuv420p -c:v libx264 -b:v 600k -bufsize 200K \
    -g:v 15 -keyint_min:v 15 -sc_threshold:v 0 -bf 3 \
    -f mp4 -movflags cmaf+frag_every_frame+empty_moov pipe:1 |
    "$weir" live publish "moqt://$relay" --insecure --strategy "$strategy" &
started+=($!)

"$weir" live play "moqt://$behind_link" --insecure --strategy "$strategy"
kill "$link"
wait "$link" || true
tail -n 1 "$folder/link"
