#!/usr/bin/env bash
# Tests interoperation with other relays and clients in both directions, and prints a Markdown table: weir's publisher
# and subscribers with other relays; other publishers and subscribers with weir's relay; other publishers with weir's
# player without a screen and its page (in Chromium, which needs node and `npm ci` in web/ and interop/moq-net/). Fails if
# a row fails.
#
# interop/relays.sh --weir FILE --peers FOLDER [--output FOLDER] [--results FILE]
#
# --weir FILE      the program
# --peers FOLDER   where moq-relay-ietf, moq-relay and the clients moq-pub, moq-sub, moq (of moq-cli) and moqtail-peer
#                  (of interop/moqtail) are; the table names missing programs
# --output FOLDER  for logs, certificate, recordings (target/interop)
# --results FILE   the page to write; its section `upstreams` stays
set -euo pipefail
cd "$(dirname "$0")/.."
. interop/programs.sh

RUN_SECONDS_MAX=60
MEDIA_SECONDS=6
SUBSCRIBERS=5
DRAFTS=(22 21 20 19 18)

read_options "$@"

# Tests weir's publisher and subscribers with a relay: every subscription of both tracks must be good, and the stream
# track complete. Datagrams may be lost, and some relays lose them on a busy machine; the note says so. The verdict on
# the relay's speed does not matter.
ours_at() {
    local relay=$1 scheme=$2 flow=$3 draft=$5 reason='' note=''
    local log=$output/ours-at-$relay-$scheme-$flow-$draft.log
    timeout "$RUN_SECONDS_MAX" "$weir" bench interop/both.ini --relay "$scheme://$address" --insecure \
        --subscribers "$SUBSCRIBERS" --publish-flow "$flow" --draft "$draft" >"$log" 2>&1 || true
    local good lost
    good=$(grep -c "subscriptions *$SUBSCRIBERS good, 0 incomplete, 0 failed" "$log") || true
    # One line per track, in the profile's order. The last figure is the sum.
    mapfile -t lost < <(sed -n 's/^ *lost objects .* //p' "$log")
    if [ "$good" -ne 2 ] || [ "${lost[1]:-none}" != 0 ]; then
        reason=$(grep -v '^ *$' "$log" | tail -n 1)
    elif [ "${lost[0]}" != 0 ]; then
        note="${lost[0]} datagrams lost"
    fi
    row "$(version "$4")" "$scheme, $flow, draft-$draft" "weir bench → relay → weir bench" "$reason" "$note"
}

# A stream with one frame in each fragment, for at most half a minute.
source_stream() {
    ffmpeg -hide_banner -v error -re -f lavfi -i testsrc=size=320x240:rate=25 -t 30 \
        -c:v libx264 -preset ultrafast -tune zerolatency -g 25 -pix_fmt yuv420p -f mp4 \
        -movflags cmaf+separate_moof+delay_moov+skip_trailer+frag_every_frame -
}

# Tests another publisher and subscriber with weir's relay: the subscriber's output must contain frames.
media_row() {
    local file=$1 name=$2 how=$3 log=$4 frames reason=''
    frames=$(ffprobe -v error -count_frames -select_streams v -show_entries stream=nb_read_frames \
        -of default=nokey=1:noprint_wrappers=1 "$file" 2>/dev/null | head -n 1) || true
    [[ ${frames:-0} =~ ^[0-9]+$ ]] && [ "${frames:-0}" -gt 10 ] ||
        reason="${frames:-no} frames; $(grep -m 1 ^Error "$log" || tail -n 1 "$log" | cut -c 1-80)"
    row "$name" "$how" "publisher → weir relay → subscriber" "$reason" "$frames frames${5:-}"
}

# Tests moq-cli as publisher and subscriber with weir's relay, by its own form of catalog. It may take several attempts; the
# page says why.
cli_media() {
    local scheme=$1 draft=$2 base=$output/moq-cli-$1-$2 attempt broadcast
    for attempt in 1 2 3; do
        broadcast=both-$scheme-$draft-$attempt
        local cli=("$peers/moq" --connect "$scheme://$address" --connect-tls-insecure --connect-version "moq-transport-$draft" --broadcast "$broadcast")
        source_stream 2>"$base-source.log" | "${cli[@]}" import fmp4 >"$base-publisher.log" 2>&1 &
        processes+=($!)
        sleep 2
        timeout -s INT "$MEDIA_SECONDS" "${cli[@]}" export --catalog-format hang fmp4 >"$base.mp4" 2>"$base.log" || true
        grep -q 'code=18$' "$base.log" || break
    done
    [ "$attempt" -eq 1 ] || local again=", attempt $attempt ([priorities](#known-problems-of-other-programs))"
    media_row "$base.mp4" "moq-cli 0.14.10" "$scheme, hang, draft-$draft" "$base.log" "${again:-}"
}

ietf_media() {
    local scheme=$1 base=$output/moq-sub-$1
    source_stream 2>"$base-source.log" |
        "$peers/moq-pub" --name "interop-$scheme" --tls-disable-verify "$scheme://$address" >"$base-publisher.log" 2>&1 &
    processes+=($!)
    sleep 2
    timeout -s INT "$MEDIA_SECONDS" "$peers/moq-sub" --name "interop-$scheme" --tls-disable-verify \
        "$scheme://$address" >"$base.mp4" 2>"$base.log" || true
    media_row "$base.mp4" "moq-pub 0.10.0, moq-sub 0.5.0" "$scheme" "$base.log"
}

# Tests weir's player with a publisher and a relay, which `way` names: at least half of the frames that arrive must be
# shown. `playing` has more options of the player, which begins `head_start` seconds after
# the publisher: other relays refuse what no one has announced.
way="publisher → weir relay → weir live play" playing=() head_start=0
play_row() {
    local name=$1 how=$2 url=$3 namespace=$4 log=$output/play-$5-${3%%:*} frames shown reason='' note=''
    shift 5
    source_stream 2>"$log-source.log" | "$@" >"$log-publisher.log" 2>&1 &
    processes+=($!)
    sleep "$head_start"
    timeout "$RUN_SECONDS_MAX" "$weir" live play "$url" --insecure --namespace "$namespace" --patience 10s "${playing[@]}" \
        --time "$((MEDIA_SECONDS + 4))s" --json "$log.json" >"$log.txt" 2>"$log.log" || reason=$(tail -n 1 "$log.log")
    frames=$(sed -n 's/^frames  *\([0-9]*\)$/\1/p' "$log.txt")
    shown=$(sed -n 's/^shown *\([0-9]*\).*/\1/p' "$log.txt")
    [ -n "$reason" ] || { [ "${frames:-0}" -gt 10 ] && [ "${shown:-0}" -ge 50 ]; } ||
        reason="${frames:-no} frames, ${shown:-no} % shown"
    note="$frames frames, $shown % shown, $(sed -n 's/.*"packaging":"\([a-z]*\)".*/as \1/p' "$log.json" 2>/dev/null)"
    row "$name" "$how" "$way" "$reason" "$note"
}

# Tests weir's live publisher and player with a relay. The player asks for the past of the group, by FETCH or by a fill.
live_at() {
    local relay=$1 scheme=$2 draft=$3 namespace=live-$2-$3
    local way="weir live publish → relay → weir live play" playing=(--draft "$draft" --join current) head_start=2
    play_row "$(version "$peers/$relay")" "$scheme, draft-$draft" "$scheme://$address" "$namespace" "$relay-$draft" \
        "$weir" live publish "$scheme://$address" --insecure --namespace "$namespace" --preset "$relay" --draft "$draft"
}

# Tests a publisher and a subscriber with moqtail and weir's relay: a subscription, a fill and a FETCH.
moqtail_row() {
    local scheme=$1 log=$output/moqtail-$1 reason='' deadline=$((SECONDS + READY_SECONDS_MAX))
    timeout "$RUN_SECONDS_MAX" "$peers/moqtail-peer" publish "$scheme://$address" "moqtail-$scheme" >"$log-publisher.txt" 2>"$log-publisher.log" &
    processes+=($!)
    until [ -s "$log-publisher.txt" ] || [ $SECONDS -ge $deadline ]; do sleep 0.05; done
    timeout "$RUN_SECONDS_MAX" "$peers/moqtail-peer" subscribe "$scheme://$address" "moqtail-$scheme" >"$log.txt" 2>"$log.log" ||
        reason=$(sed '/^ *$/d' "$log-publisher.log" "$log.log" | tail -n 1)
    row "$("$peers/moqtail-peer" --version)" "$scheme, draft-22" "publisher → weir relay → subscriber" "$reason" "$(cat "$log.txt")"
}

# Tests other publishers with weir's page: web/browser/others.mjs reports whether each plays.
page_rows() {
    local log=$output/page.txt program how way reason note name
    WEIR=$weir timeout 600 node web/browser/others.mjs "$peers" >"$log" 2>"$output/page.log" || true
    [ -s "$log" ] || row "their publishers" "" "publisher → weir relay → browser player" "$(tail -n 1 "$output/page.log")"
    while IFS='|' read -r program how way reason note; do
        name=$(version "$peers/$program")
        row "${name/#moq /moq-cli }" "$how" "$way" "$reason" "$note"
    done <"$log"
}

# Tests a publisher and a subscriber with @moq/net in Chromium and weir's relay: interop/moq-net/run.mjs reports each draft.
moq_net_rows() {
    local log=$output/moq-net.txt how reason note way="publisher → weir relay → subscriber"
    WEIR=$weir timeout 300 node interop/moq-net/run.mjs >"$log" 2>"$output/moq-net.log" || true
    [ -s "$log" ] || row "@moq/net" "" "$way" "$(tail -n 1 "$output/moq-net.log")"
    while IFS='|' read -r how reason note; do
        row "@moq/net $(sed -n 's/.*"@moq\/net": "\(.*\)".*/\1/p' interop/moq-net/package.json)" "$how" "$way" "$reason" "$note"
    done <"$log"
}

certificate
# moq-relay does not accept PUBLISH. moq-relay-ietf serves published tracks only after a PUBLISH_NAMESPACE.
for relay in moq-relay-ietf moq-relay; do
    if [ ! -x "$peers/$relay" ]; then
        missing "$relay" "" "weir bench → relay → weir bench" "$relay"
        continue
    fi
    start "$relay" 15601
    drafts=("${DRAFTS[@]}")
    [ "$relay" = moq-relay ] || drafts=(18)
    for draft in "${drafts[@]}"; do
        ours_at "$relay" moqt namespace "$peers/$relay" "$draft"
        ours_at "$relay" https namespace "$peers/$relay" "$draft"
        if command -v ffmpeg >/dev/null; then
            live_at "$relay" moqt "$draft"
            live_at "$relay" https "$draft"
        fi
    done
    end_all
done
start weir 15602
for draft in "${DRAFTS[@]}"; do
    ours_at weir moqt namespace "$weir" "$draft"
    ours_at weir moqt publish "$weir" "$draft"
    ours_at weir https namespace "$weir" "$draft"
done
if [ -x "$peers/moqtail-peer" ]; then
    moqtail_row moqt
    moqtail_row https
else
    missing "moqtail 0.17.0" "" "publisher → weir relay → subscriber" moqtail-peer
fi
if [ -x "$peers/moq" ] && command -v ffmpeg >/dev/null; then
    for draft in "${DRAFTS[@]}"; do
        for scheme in https moqt; do
            play_row "moq-cli 0.14.10" "$scheme, MSF and CMSF, draft-$draft" "$scheme://$address" "cli-$scheme-$draft" "moq-$draft" \
                "$peers/moq" --connect "$scheme://$address" --connect-tls-insecure \
                --connect-version "moq-transport-$draft" --broadcast "cli-$scheme-$draft" import fmp4
            cli_media "$scheme" "$draft"
        done
    done
else
    missing "moq-cli" "" "publisher → weir relay → weir live play" "moq or ffmpeg"
fi
if [ -x "$peers/moq-pub" ] && command -v ffmpeg >/dev/null; then
    play_row "moq-pub 0.10.0" "https, catalogformat-01 and CMSF" "https://$address" play-https moq-pub \
        "$peers/moq-pub" --name play-https --tls-disable-verify "https://$address"
else
    missing "moq-pub" "" "publisher → weir relay → weir live play" "moq-pub or ffmpeg"
fi
if [ -x "$peers/moq-pub" ] && [ -x "$peers/moq-sub" ] && command -v ffmpeg >/dev/null; then
    ietf_media moqt
    ietf_media https
else
    missing "moq-pub, moq-sub" "" "publisher → weir relay → subscriber" "moq-pub, moq-sub or ffmpeg"
fi
end_all
if [ -d web/node_modules/playwright-core ] && command -v node ffmpeg >/dev/null; then
    [ -x "$peers/moq" ] || missing "moq-cli" "" "publisher → weir relay → browser player" moq
    page_rows
else
    missing "moq-cli, moq-pub" "" "publisher → weir relay → browser player" "node with web/node_modules, or ffmpeg"
fi

if [ -d web/node_modules/playwright-core ] && [ -d interop/moq-net/node_modules ]; then
    moq_net_rows
else
    missing "@moq/net" "" "publisher → weir relay → subscriber" "node with interop/moq-net/node_modules"
fi

if [ -n "$results" ]; then
    chains=$(sed -n '/^<!-- upstreams begin/,/^<!-- upstreams end/p' "$results" 2>/dev/null) || true
    {
        cat <<'EOF'
# Interoperation

How weir works with other programs. Rows without a draft are at draft-18. `make interop` installs them from their package
registries, runs all tests on this page, and writes the page.
EOF
        echo
        echo "Tested: $(version "$weir"), with audio by datagram and video by stream ([both.ini](../interop/both.ini)), or with an H.264 stream"
        cat <<'EOF'
of ffmpeg. The browser player runs in headless Chromium, with sound. Other programs have [known problems](#known-problems-of-other-programs).

| program | transport and flow | path of the objects | result |
|---|---|---|---|
EOF
        printf '%s\n' "${rows[@]}"
        if [ -f "$output/moq-test-client.md" ]; then
            echo
            echo '## Conformance'
            echo
            echo "The cases of \`moq-test-client\` 0.2.0 against weir's relay, over raw QUIC (\`moqt\`) and WebTransport (\`https\`):"
            echo
            cat "$output/moq-test-client.md"
        fi
        if [ -f "$output/http3.md" ]; then
            echo
            echo '## HTTP/3'
            echo
            echo "Tested by \`interop/http3.sh\`. \`make test-web\` tests Chromium with weir's server."
            echo
            cat "$output/http3.md"
        fi
        cat <<'EOF'

## Chains of two relays

weir's relay with `--upstream`, and other relays that connect to weir's: publisher at one relay, subscribers at the other.
`make interop-upstreams` measures this section again.

EOF
        echo "${chains:-<!-- upstreams begin: made by make interop-upstreams -->

Not measured yet.

<!-- upstreams end -->}"
        cat <<'EOF'

## Relays of the draft

draft-evens-moq-bench-00 names two relays. Neither is measured:

- **LAPS**, branch draft-18 of June 2026: the client aiomoqt passes 1 of 12 conformance cases with it, and closes the others with
  "PublishOk body ends 1 bytes short of its Length (3)". moq-bench, built with the library of LAPS, works through it. Build it as its
  repository says; then `weir bench compare profiles/laps.toml` measures it beside weir. weir's own client has not been tried with it.
- **Moxygen** needs folly, fizz, wangle, mvfst and proxygen at matching commits, which its build fetches from GitHub. The package registries
  that this project uses have none of them (Debian, crates.io, PyPI, npm), so no target builds it. A Moxygen relay that runs can be
  compared: an entry without `start`.

## Known problems of other programs

- **`moq-pub` 0.10.0 over raw QUIC** (`moqt://`) ends with "invalid RESET_STREAM: 1" when the relay cancels a request. The tests use
  WebTransport.
- **`@moq/net` 0.3.4** (npm) speaks drafts 14 to 20, and receives a track if it subscribes before the first object. Otherwise it expects
  a length before LARGEST_OBJECT, which the drafts do not have ("Two consecutive varints", draft-18 §10.2). **`@moq/watch` 0.4.6** uses
  `@moq/net` 0.2.8, which encodes SUBSCRIBER_PRIORITY as an integer of variable length (one byte in draft-18 §10.2.7), and does not
  play. `moq-net` 0.3.18, the same project in Rust, has neither fault.
- **`moq-cli` 0.14.10 as a publisher, and `moq-relay` 0.17.10**: their library, moq-net 0.3.18, gives objects another publisher priority in
  answers to FETCH (0) than on subgroup streams. By draft-18 §9.1 and all later drafts a relay that sees both has to end the track with
  MALFORMED_TRACK (18), which weir's relay does. It needs a subscriber that fetches, and an object that arrives both ways, so it does not
  happen in every run: of ten subscriptions of moq-cli two ended so. The rows repeat such a run, and say so.
- **`moq-relay` 0.17.10** serves only subgroup 0 of each group ("subgroup ID is not supported"). Publish live streams to it with
  `--preset moq-relay`, whose strategy has one subgroup for each group. It also refuses tracks that nobody has announced yet.
- **`moq-relay-ietf` 0.8.0 with `--announce`** passes namespaces on to the other relay, and answers no subscription for them there ("This
  advertise-only container cannot route a subscribe back down the dialed session", its `consumer.rs`). It asks the other relay for nothing
  either. Let weir's relay connect to it: `--upstream`.
- **moqtail 0.17.0** does not know PUBLISH_STATE_NOTIFY, and closes the session of a relay that sends one. weir sends none.
- **`moq-cli` 0.14.10 as a subscriber** (`export fmp4`) receives its own stream by its own catalog (`hang`). By an MSF catalog it fails with
  "invalid Annex B start code", for its own fragments and for weir's. From weir's LOC stream it writes a `moov` and no frames.
- **`moq-test-client` 0.2.0 on a busy machine** can report missing objects in `moq-test-datagram` and `moq-test-datagram-eog`. Its library,
  moq-transport 0.17.0, keeps only the latest datagram of a track when it sends and when it receives (`serve/datagram.rs`): a datagram is
  lost if the next one comes before the task runs. Repeat the test on an idle machine. Of 40 runs on two overloaded cores, 31 failed. In
  14 of these nothing reached weir's relay, in 2 some datagrams did, and it forwarded them. In 15 it received and sent all 15 datagrams,
  by its counters.
EOF
    } >"$results"
fi
[ "$failed" -eq 0 ] || {
    echo "$failed rows failed; the output is in $output"
    exit 1
}
