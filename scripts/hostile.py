#!/usr/bin/env python3
"""Prints what scripts/hostile.sh measured, as Markdown. Exits with 1 if an honest subscriber lost an object, if the heap
exceeded the relay's memory limit, or if the relay closed no session when its memory was scarce.

usage: hostile.py FOLDER SECONDS SUBSCRIBERS HOSTILE_CORE MEMORY_MIB SCARCE_MEMORY_MIB PROBES
"""
import datetime, glob, json, os, platform, sys
from statistics import median

folder, seconds, subscribers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
are_apart = sys.argv[4] != "1"
memory, scarce_memory, probes = (int(argument) for argument in sys.argv[5:8])
MEBIBYTE = 2**20


def samples(name):
    """Returns the rows of sessions, bytes of the cgroup, bytes of the heap, packets received."""
    rows = []
    for line in open(f"{folder}/{name}.samples"):
        fields = line.split()
        if len(fields) == 4:
            rows.append([float(field) for field in fields])
    return rows


def processor():
    names = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {len(names)} cores, Linux {platform.release()}"


def counts(name):
    """Returns how many sessions a relay closed for their memory, and how often it began to refuse new ones."""
    return (float(it) for it in open(f"{folder}/{name}.counts").read().split())


rounds = {"alone": [], "others": [], "hostile": [], "scarce": []}
for kind, found in rounds.items():
    for path in sorted(glob.glob(f"{folder}/*.{kind}.json")):
        report = json.load(open(path))
        slo = report["slo"]
        rows = samples(os.path.basename(path).removesuffix(".json"))
        found.append(
            {
                "lost": slo["lost_objects"],
                "failed": next(it["measured"] for it in slo["clauses"] if it["metric"] == "failed"),
                "p99": slo["latency_p99_ms"],
                "sessions": median(row[0] for row in rows),
                "cgroup": max(row[1] for row in rows),
                "heap": max(row[2] for row in rows),
                "packets": (rows[-1][3] - rows[0][3]) / (len(rows) - 1),
                "cpu": report["relay"]["cost"]["cpu_percent"],
                "lateness": report["generator"]["publisher_lateness"]["p99_ms"],
            }
        )

# The sessions of the bench are honest, and the two of the bystander of each probe.
own = subscribers + 1
bystanders = 2 * probes


def show(number, kind, words):
    one = rounds[kind][number]
    honest = own + (bystanders if kind in ("hostile", "scarce") else 0)
    print(
        f"| {number + 1}, {words} | {max(0, one['sessions'] - honest):.0f} | {one['packets']:,.0f} | {one['lost']} | {one['failed']:.0f} "
        f"| {one['p99']:.2f} ms | {one['lateness']:.2f} ms | {one['cpu']:.0f} % "
        f"| {one['heap'] / MEBIBYTE:.0f} MiB | {one['cgroup'] / MEBIBYTE:.0f} MiB |"
    )


print(f"Measured on {datetime.date.today()} on {processor()}: `make hostile`.\n")
print(
    f"{len(rounds['hostile'])} rounds of {seconds} s, in turns: {subscribers} honest subscribers alone, beside other honest ones, "
    "and beside hostile sessions; then, with little memory, beside those hostile "
    "sessions that make the relay hold the most."
)
print(f"The relay is on a core of its own, in a cgroup of 512 MiB with `limits.load.memory_bytes_max = \"{memory}MiB\"`;")
print(f"in the last {len(rounds['scarce'])} rounds, \"{scarce_memory}MiB\".")
cores = "have a core each" if are_apart else "share another core, where the former go first"
print(f"The {subscribers} and the other clients {cores}. Each of {probes} hostile processes has two honest sessions of its own, which")
print("do not count as others.\n")
print("| Round | Other sessions | Packets a second | Lost | Failed | p99 | Publisher late, p99 | CPU of the relay | Heap at most | Cgroup at most |")
print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
for number in range(len(rounds["hostile"])):
    for kind, words in (("alone", "alone"), ("others", "honest"), ("hostile", "hostile")):
        show(number, kind, words)
for number in range(len(rounds["scarce"])):
    show(number, "scarce", "little memory")
closed, sheddings = counts("ample")
scarce_closed, scarce_sheddings = counts("scarce")
alone, others, hostile, scarce = (median(one["p99"] for one in found) for found in rounds.values())
print(f"\nThe relay was not killed. It closed {closed:.0f} sessions for their memory, and began to refuse new sessions {sheddings:.0f} times;")
print(f"with little memory, it closed {scarce_closed:.0f}, and began to refuse new ones {scarce_sheddings:.0f} times.")
print(f"Median p99: alone {alone:.2f} ms, beside honest sessions {others:.2f} ms, beside hostile ones {hostile:.2f} ms,")
print(f"with little memory {scarce:.2f} ms.")

failures = [f"{kind}: an honest subscriber lost something" for kind in rounds for one in rounds[kind] if one["lost"] or one["failed"]]
for kind, limit in (("hostile", memory), ("scarce", scarce_memory)):
    if max(one["heap"] for one in rounds[kind]) > limit * MEBIBYTE:
        failures.append(f"{kind}: the heap exceeded {limit} MiB")
if scarce_closed == 0:
    failures.append("scarce: no session was closed for its memory")
for failure in failures:
    print(f"FAIL: {failure}", file=sys.stderr)
sys.exit(bool(failures))
