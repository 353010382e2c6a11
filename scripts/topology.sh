#!/usr/bin/env bash
# The topology of draft-evens-moq-bench-00, Appendix A.1, in three network namespaces: relay and publisher on one host,
# the subscribers on two others, whose clocks are five minutes apart. Searches what the draft's Table 4 tells: the
# subscribers without a lost datagram, at less than 95 % of a core. Needs root, ip and nats-server.
# Usage: scripts/topology.sh [WEIR [ARGUMENTS OF weir bench find-max ...]]
set -euo pipefail

weir=$(realpath "${1:-target/release/weir}")
shift || true
hosts=(relay-host clients-1 clients-2)
name=weir-$$
folder=$(mktemp -d)
started=()
finish() {
    for process in "${started[@]}"; do
        kill "$process" 2>/dev/null || true
    done
    wait
    for host in "${hosts[@]}"; do
        ip netns del "$name-$host" 2>/dev/null || true
    done
    rm -rf "$folder"
}
trap finish EXIT

inside() {
    local host=$1
    shift
    ip netns exec "$name-$host" "$@"
}

# A switch in the first host's namespace; every host has 10.77.0.N.
number=0
for host in "${hosts[@]}"; do
    ip netns add "$name-$host"
    inside "$host" ip link set lo up
    number=$((number + 1))
    if [ "$number" = 1 ]; then
        inside "$host" ip link add switch type bridge
        inside "$host" ip addr add 10.77.0.1/24 dev switch
        inside "$host" ip link set switch up
        continue
    fi
    ip link add eth0 netns "$name-$host" type veth peer name "port$number" netns "$name-${hosts[0]}"
    inside "${hosts[0]}" ip link set "port$number" master switch up
    inside "$host" ip addr add "10.77.0.$number/24" dev eth0
    inside "$host" ip link set eth0 up
done

# Waits until the file $1 contains $2, for a minute at most.
await() {
    for _ in $(seq 600); do
        grep -q "$2" "$1" && return
        sleep 0.1
    done
    cat "$1" >&2
    exit 1
}

head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$folder/key"
fleet=(--fleet nats://10.77.0.1:4222 --fleet-key "$folder/key")
ip netns exec "$name-relay-host" nats-server -a 10.77.0.1 -p 4222 2>"$folder/nats" &
started+=($!)
await "$folder/nats" "Server is ready"
ip netns exec "$name-relay-host" taskset -c 0 "$weir" relay --listen 10.77.0.1:4443 >"$folder/relay" &
started+=($!)
await "$folder/relay" listening
relay=${started[-1]}
for host in "${hosts[@]}"; do
    own=(--name "$host")
    case $host in
    relay-host) own+=(--watch "$relay") ;;
    clients-1) own+=(--clock-offset 300000) ;;
    esac
    ip netns exec "$name-$host" "$weir" agent "${fleet[@]}" "${own[@]}" 2>"$folder/$host" &
    started+=($!)
    await "$folder/$host" "waits for a controller"
done

inside relay-host "$weir" bench find-max profiles/audio.ini --relay moqt://10.77.0.1:4443 --insecure --agents 3 \
    --publishers-at relay-host --slo 'loss=0,failed=0,cpu<95%' "${fleet[@]}" "$@"
