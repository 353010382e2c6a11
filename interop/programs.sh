# What the scripts that test other programs share: starting relays, and the rows of a table. To be sourced, from the root of the
# project; `weir`, `peers` and `output` are the program, the folder of other programs and the folder for logs.

READY_SECONDS_MAX=10

die() {
    echo "error: $1" >&2
    exit 2
}

weir='' peers='' output=target/interop results=''
# Reads the options of the scripts into these, checks them, and makes the folder.
read_options() {
    while [ $# -gt 0 ]; do
        [ $# -ge 2 ] || die "$1 needs a value"
        case $1 in
        --weir) weir=$2 ;;
        --peers) peers=$2 ;;
        --output) output=$2 ;;
        --results) results=$2 ;;
        *) die "unknown option $1" ;;
        esac
        shift 2
    done
    [ -x "$weir" ] || die "no program at '$weir'"
    [ -d "$peers" ] || die "no folder '$peers': \`make interop\` fills one"
    mkdir -p "$output"
}

# Ends the started programs, each by its process ID.
processes=()
end_all() {
    local process
    for process in "${processes[@]}"; do
        kill -TERM "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    processes=()
}
trap end_all EXIT

# Prints name and version: what the program prints, or else what cargo recorded at its installation.
version() {
    local text
    text=$("$1" --version 2>/dev/null | head -n 1) || true
    [ -n "$text" ] || text=$(sed -n "s/^\"\($(basename "$1") [0-9.]*\) .*/\1/p" "$peers/../.crates.toml" 2>/dev/null) || true
    echo "${text:-$(basename "$1")}"
}

rows=() failed=0
# Adds a row: the two programs, how, how objects travel, the failure (empty if none), and a note.
row() {
    local result=pass${5:+, $5}
    if [ -n "$4" ]; then
        result="fail: ${4//|/ }"
        failed=$((failed + 1))
    fi
    rows+=("| $1 | $2 | $3 | $result |")
    printf '%-34s %-26s %-34s %s\n' "$1" "$2" "$3" "$result"
}
# Adds a row for a case that cannot be tested here.
missing() {
    rows+=("| $1 | $2 | $3 | not tried: no \`$4\` here |")
    printf '%-34s %-26s %-34s not tried: no %s\n' "$1" "$2" "$3" "$4"
}

# Adds a row for a case that the other program does not support.
impossible() {
    rows+=("| $1 | $2 | $3 | not possible: $4 |")
    printf '%-34s %-26s %-34s not possible: %s\n' "$1" "$2" "$3" "$4"
}

certificate() {
    [ -s "$output/cert.pem" ] && return
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 13 \
        -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
        -keyout "$output/key.pem" -out "$output/cert.pem" 2>"$output/openssl.log" ||
        die "no certificate: $(tail -n 1 "$output/openssl.log")"
}

# Starts a relay on a port, with more of its arguments, and sets `address`. Other relays do not say when they are ready, so the tests
# wait.
start() {
    local kind=$1 port=$2 log=$output/$1.log
    address=127.0.0.1:$port
    shift 2
    case $kind in
    moq-relay-ietf)
        "$peers/moq-relay-ietf" --bind "$address" --tls-cert "$output/cert.pem" --tls-key "$output/key.pem" "$@" >"$log" 2>&1 &
        ;;
    moq-relay)
        "$peers/moq-relay" --listen "$address" --listen-tls-cert "$output/cert.pem" --listen-tls-key "$output/key.pem" \
            --auth-public '**' "$@" >"$log" 2>&1 &
        ;;
    weir)
        "$weir" relay --listen "$address" --cert "$output/cert.pem" --key "$output/key.pem" "$@" >"$log" 2>&1 &
        ;;
    esac
    processes+=($!)
    local process=$! deadline=$((SECONDS + READY_SECONDS_MAX))
    # In hexadecimal, as in the table of UDP sockets.
    local entry
    entry=$(printf '0100007F:%04X' "$port")
    until grep -q "$entry" /proc/net/udp; do
        kill -0 "$process" 2>/dev/null || die "$kind ended: $(tail -n 3 "$log")"
        [ $SECONDS -lt $deadline ] || die "$kind does not listen"
        sleep 0.05
    done
}
