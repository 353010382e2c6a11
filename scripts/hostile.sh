#!/usr/bin/env bash
# Honest subscribers beside hostile sessions, on a relay in a cgroup of 512 MB: rounds alone, beside other honest sessions that
# cost the relay nearly as much, and beside hostile ones, in turns. Then a relay with little memory, beside hostile sessions:
# it has to close some of them. Fails if the relay is killed or closes none then, if its heap exceeds its limit, or if an honest
# subscriber loses an object; latencies are reported.
#
# scripts/hostile.sh WEIR [--seconds N] [--rounds N] [--subscribers N] [--others N] [--probes N] [--hostile-cpu PER_CENT] [--results FILE]
#
# WEIR       the program
# --others   subscribers of the rounds with other honest sessions
# --probes   hostile processes: each runs hostile cases of `weir probe` all the while, with up to eight sessions at once
# --hostile-cpu  what the hostile processes together may take of a core, so that their rate is that of a link, not of the
#            machine
# --results  write the section `hostile` of this page
#
# The relay has the first core alone, honest clients the second, and hostile ones the third. On two cores these share the second,
# where the honest ones go first: in a network, they would be on other machines, and what delays them there is not the relay.
#
# Needs root, a writable cgroup with the memory controller (version 1 or 2), openssl, python3, chrt and two cores.
set -euo pipefail
cd "$(dirname "$0")/.."

weir=$1
shift
seconds=40 rounds=3 subscribers=100 others=650 probes=55 hostile_cpu=60 results=''
while [ $# -gt 0 ]; do
    case $1 in
    --seconds) seconds=$2 ;;
    --rounds) rounds=$2 ;;
    --subscribers) subscribers=$2 ;;
    --others) others=$2 ;;
    --probes) probes=$2 ;;
    --hostile-cpu) hostile_cpu=$2 ;;
    --results) results=$2 ;;
    *) echo "error: unknown option $1" >&2 && exit 2 ;;
    esac
    shift 2
done

LISTEN=127.0.0.1:15480 ADMIN=127.0.0.1:15481
hostile_core=1
[ "$(nproc)" -lt 3 ] || hostile_core=2
# The memory of the cgroup, and what the relay and its cache may use of it, in MiB: at first, and when memory is scarce.
CGROUP_BYTES=$((512 << 20)) MEMORY=400 CACHE=128 SCARCE_MEMORY=64 SCARCE_CACHE=32
# The kinds of hostile peers, by the names of their cases; and those that make the relay hold the most.
KINDS=greedy.,slow.,vanishing.,large.,limit.,storm.,handshake.never-finished GREEDY_KINDS=greedy.,large.

folder=$(mktemp -d) relay='' cgroup='' hostile_cgroup='' hostile=()
finish() {
    for process in "${hostile[@]}" $relay; do
        kill "$process" 2>/dev/null || true
    done
    wait
    for group in $cgroup $hostile_cgroup; do
        for _ in $(seq 50); do
            rmdir "$group" 2>/dev/null && break
            sleep 0.1
        done
    done
    rm -rf "$folder"
}
trap finish EXIT

# Prints the folder of a new cgroup of the controller $1, if possible below the one of this shell, so that the limits above
# it hold too. Its limit is $3 in the file $2 of version 1, or $5 in $4 of version 2.
make_cgroup() {
    local first second parent cgroup
    first=$(sed -n "s/^[0-9]*:$1://p" /proc/self/cgroup)
    second=$(sed -n 's/^0:://p' /proc/self/cgroup)
    for parent in "/sys/fs/cgroup/$1$first" "/sys/fs/cgroup/$1" "/sys/fs/cgroup$second" /sys/fs/cgroup; do
        cgroup=${parent%/}/weir-hostile-$$
        mkdir "$cgroup" 2>/dev/null || continue
        # A write to a file that does not exist would make one.
        if { [ -e "$cgroup/$2" ] && echo "$3" 2>/dev/null >"$cgroup/$2"; } ||
            { [ -e "$cgroup/$4" ] && echo "$5" 2>/dev/null >"$cgroup/$4"; }; then
            echo "$cgroup"
            return
        fi
        rmdir "$cgroup"
    done
    echo "error: no cgroup with a limit of $1 can be made: this needs root and that controller" >&2
    return 2
}

# Prints a metric of the relay.
metric() { curl --silent --max-time 2 "http://$ADMIN/metrics" | awk -v name="$1" '$1 == name { print $2 }'; }

# Starts a relay that may use $1 MiB of memory, and $2 MiB of them for its cache.
start_relay() {
    : >"$folder/relay.txt"
    # As in packaging/weir-relay.service.
    # shellcheck disable=SC2016
    MIMALLOC_ALLOW_THP=0 sh -c 'echo $$ >"$0/cgroup.procs" && exec taskset -c 0 "$@"' "$cgroup" \
        "$weir" relay --listen "$LISTEN" --admin "$ADMIN" --cert "$folder/cert.pem" --key "$folder/key.pem" \
        --set "limits.load.memory_bytes_max=$1MiB" --set "limits.relay.cache_bytes_max=$2MiB" \
        >"$folder/relay.txt" 2>>"$folder/relay.log" &
    relay=$!
    local deadline=$((SECONDS + 20))
    until [ -s "$folder/relay.txt" ]; do
        kill -0 "$relay" 2>/dev/null || { cat "$folder/relay.log" >&2 && echo "error: the relay ended" >&2 && exit 1; }
        [ $SECONDS -lt $deadline ] || { echo "error: the relay does not listen" >&2 && exit 1; }
        sleep 0.1
    done
}

# Writes down what the relay counted, as the counts $1, and ends it.
stop_relay() {
    {
        metric weir_relay_sessions_closed_memory_total
        metric weir_relay_load_sheddings_total
    } | paste -sd ' ' >"$folder/$1.counts"
    kill "$relay"
    wait "$relay" || true
}

# Runs hostile cases of the kinds $2, from the seed $1 on, until it is ended: a quarter of all in each of two drafts over each of two
# transports. Half of them are patient, so that many sessions last.
attack() {
    local seed=$1 kinds=$2 probe='' relay_url=moqt://$LISTEN draft=18 patience=2s
    [ $((seed % 2)) = 0 ] || relay_url=https://$LISTEN/
    [ $((seed / 2 % 2)) = 0 ] || draft=22
    [ $((seed / 4 % 2)) = 0 ] || patience=20s
    echo "$BASHPID" >"$hostile_cgroup/cgroup.procs"
    trap 'kill "$probe" 2>/dev/null; exit' TERM
    while true; do
        taskset -c "$hostile_core" "$weir" probe "$relay_url" --draft "$draft" --insecure --only "$kinds" --patience "$patience" --settle 0s \
            --seed "$seed" >"$folder/probe.$1.txt" 2>&1 &
        probe=$!
        wait "$probe" || true
        seed=$((seed + probes))
        sleep 0.1
    done
}

# Runs 200 subscribers that are stopped as soon as they are subscribed, so that they read nothing more, again and again until it
# is ended.
fall_silent() {
    local bench=''
    trap 'kill -KILL "$bench" 2>/dev/null; exit' TERM
    while true; do
        taskset -c "$hostile_core" "$weir" bench profiles/audio.ini --relay "moqt://$LISTEN" --insecure --instance 2 \
            --publishers-cores "$hostile_core" --subscribers-cores "$hostile_core" --subscribers 200 --seconds 60 >"$folder/silent.txt" 2>&1 &
        bench=$!
        sleep 5
        kill -STOP "$bench" 2>/dev/null || true
        sleep 20 &
        wait $! || true
        kill -KILL "$bench" 2>/dev/null || true
        wait "$bench" 2>/dev/null || true
    done
}

# Prints the sessions of the relay, the memory of its cgroup, its heap and its packets, once a second.
sample() {
    while sleep 1; do
        echo "$(metric weir_relay_sessions) $(cat "$cgroup/memory.usage_in_bytes" "$cgroup/memory.current" 2>/dev/null)" \
            "$(metric weir_heap_bytes) $(metric weir_host_packets_received_total)"
    done
}

# Sets what the hostile processes together may take, in per cent of a core; nothing for no limit. The share is dealt out in
# periods of 5 ms: with the usual 100 ms, all of them would send at once, ten times a second.
throttle() {
    local quota=${1:+$(($1 * 50))}
    if [ -e "$hostile_cgroup/cpu.max" ]; then
        echo "${quota:-max} 5000" >"$hostile_cgroup/cpu.max"
    else
        echo 5000 >"$hostile_cgroup/cpu.cfs_period_us"
        echo "${quota:--1}" >"$hostile_cgroup/cpu.cfs_quota_us"
    fi
}

# Waits until the relay's metric $1 is $2 (-ge, -le) $3.
await() {
    local deadline=$((SECONDS + 60)) value=''
    until value=$(metric "$1") && [ -n "$value" ] && [ "$value" "$2" "$3" ]; do
        if [ $SECONDS -ge $deadline ]; then
            tail -n 5 "$folder/relay.log" "$folder"/*.hostile.txt "$folder"/*.alone.txt >&2 || true
            echo "error: $1 is ${value:-unknown} after 60 s, not $2 $3" >&2
            exit 1
        fi
        sleep 0.5
    done
}

# Runs more honest sessions, in the place of the hostile ones.
accompany() {
    taskset -c "$hostile_core" "$weir" bench profiles/audio.ini --relay "moqt://$LISTEN" --insecure --instance 1 \
        --publishers-cores "$hostile_core" --subscribers-cores "$hostile_core" --subscribers "$others" --seconds $((seconds + 20)) \
        >"$folder/others.txt" 2>&1 &
    hostile+=($!)
    await weir_relay_subscriptions -ge $((subscribers + others))
}

# Measures the honest subscribers in round $1 of the kind $2. The other sessions begin when these are served.
measure() {
    local name=$1.$2 kinds=$KINDS sampler bench
    [ "$2" != scarce ] || kinds=$GREEDY_KINDS
    hostile=()
    # The relay notices within its idle timeout that killed clients are gone.
    await weir_relay_sessions -le 0
    chrt --fifo 1 "$weir" bench profiles/audio.ini --relay "moqt://$LISTEN" --relay-pid "$relay" --insecure \
        --publishers-cores 1 --subscribers-cores 1 --subscribers "$subscribers" --ramp 50 --seconds "$seconds" \
        --slo loss=0,failed=0 --json "$folder/$name.json" >"$folder/$name.txt" 2>&1 &
    bench=$!
    await weir_relay_subscriptions -ge "$subscribers"
    case $2 in
    others) accompany ;;
    hostile | scarce)
        # From the beginning: with a whole core, they send more than the relay's socket holds, and no relay can help that.
        throttle "$hostile_cpu"
        for ((probe = 1; probe <= probes; probe++)); do
            attack "$probe" "$kinds" &
            hostile+=($!)
        done
        fall_silent &
        hostile+=($!)
        sleep 8
        ;;
    esac
    sample >"$folder/$name.samples" &
    sampler=$!
    hostile+=("$sampler")
    wait "$bench" || true
    kill "$sampler"
    throttle ''
    for process in "${hostile[@]}"; do
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    hostile=()
    [ -e "$folder/$name.json" ] || { cat "$folder/$name.txt" >&2 && echo "error: nothing was measured" >&2 && exit 1; }
    kill -0 "$relay" 2>/dev/null || { tail -n 3 "$folder/relay.log" >&2 && echo "FAIL: the relay was killed" >&2 && exit 1; }
}

cgroup=$(make_cgroup memory memory.limit_in_bytes "$CGROUP_BYTES" memory.max "$CGROUP_BYTES")
hostile_cgroup=$(make_cgroup cpu cpu.cfs_quota_us -1 cpu.max 'max 100000')
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE \
    -keyout "$folder/key.pem" -out "$folder/cert.pem" 2>"$folder/openssl.txt"
start_relay "$MEMORY" "$CACHE"
for ((round = 1; round <= rounds; round++)); do
    echo "round $round of $rounds" >&2
    measure "$round" alone
    measure "$round" others
    measure "$round" hostile
done
stop_relay ample
start_relay "$SCARCE_MEMORY" "$SCARCE_CACHE"
for ((round = 1; round <= rounds; round++)); do
    echo "round $round of $rounds with little memory" >&2
    measure "$round" scarce
done
stop_relay scarce
python3 scripts/hostile.py "$folder" "$seconds" "$subscribers" "$hostile_core" "$MEMORY" "$SCARCE_MEMORY" "$probes" >"$folder/section.md" || code=$?
cat "$folder/section.md"
[ -z "$results" ] || scripts/write-section.sh "$results" hostile <"$folder/section.md"
exit "${code:-0}"
