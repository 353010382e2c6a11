#!/bin/sh
# Makes a certificate of your own CA, for the relays of a fleet: it serves as server and as client certificate.
#
#   packaging/fleet/certificates.sh FOLDER NAME...
#
# FOLDER gets tls.crt, tls.key and ca.crt; the names (or addresses) are those in fleet.url and those by which clients come. The CA, ca.crt and
# ca.key, is in the current folder. It is made if it is not there, for ten years; certificates are for one year.
set -eu
[ $# -ge 2 ] || { echo "usage: $0 FOLDER NAME..." >&2; exit 2; }
folder=$1
shift
umask 077
mkdir -p "$folder"
make() { openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "$@" 2> "$folder/openssl.log" || { cat "$folder/openssl.log" >&2; exit 1; }; }
[ -e ca.key ] || make -days 3650 -keyout ca.key -out ca.crt -subj "/CN=our relays"
names=
for name; do
    case $name in
    *:* | [0-9]*.*.*.*[0-9]) [ -n "${name##*[!0-9a-fA-F:.]*}" ] && kind=IP || kind=DNS ;;
    *) kind=DNS ;;
    esac
    names=$names,$kind:$name
done
make -days 365 -keyout "$folder/tls.key" -out "$folder/tls.crt" -CA ca.crt -CAkey ca.key -subj "/CN=$1" \
    -addext "subjectAltName=${names#,}" -addext "basicConstraints=critical,CA:FALSE"
rm "$folder/openssl.log"
cp ca.crt "$folder"
chmod 644 ca.crt "$folder/ca.crt" "$folder/tls.crt"
