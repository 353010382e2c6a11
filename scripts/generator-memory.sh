#!/bin/sh
# Prints the load generator's memory after 10^6 and after 10^7 objects, from a report of weir bench. Fails if there were
# fewer objects, or if the memory grew by more than 4 MiB.
# usage: generator-memory.sh REPORT.json
set -eu
python3 - "$1" <<'PYTHON'
import json, sys

seconds = json.load(open(sys.argv[1]))["generator"]["per_second"]
at = lambda objects: next((one for one in seconds if one["objects"] >= objects), None)
first, last = at(10**6), at(10**7)
if first is None or last is None:
    sys.exit(f"only {max((one['objects'] for one in seconds), default=0):,} objects")
mebibytes = lambda one: one["rss_bytes"] / 2**20
for one in (first, last):
    print(f"{one['objects']:>12,} objects: {mebibytes(one):.1f} MiB resident")
if mebibytes(last) - mebibytes(first) > 4:
    sys.exit("it grew by more than 4 MiB")
PYTHON
