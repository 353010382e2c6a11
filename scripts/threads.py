#!/usr/bin/env python3
"""Searches for what `weir relay --threads` 1, 2, 4 and 8 carries, with the load on the other cores, and writes the section
`relay-threads` of a page. Needs two cores more than the relay has threads; fewer threads are measured where there are fewer.

usage: threads.py WEIR PAGE [--records FOLDER [--machine TEXT]]

--records  keep the records of the searches in FOLDER; those that are there already are not made again
--machine  the machine on which they were made, if it is another
"""
import json, os, platform, subprocess, sys, tempfile

# Threads, load of the first probe, subscribers that join in a second, seconds of the search.
SEARCHES = [(1, 1800, 1500, 45), (2, 3600, 3000, 55), (4, 7000, 5000, 65), (8, 12000, 8000, 85)]


def flag(name):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None


def search(weir, path, threads, first, ramp, seconds):
    cores = sorted(os.sched_getaffinity(0))
    load = cores[threads:]
    words = lambda cores: ",".join(map(str, cores))
    command = [weir, "bench", "find-max", "profiles/audio.ini", "--relay-threads", str(threads), "--relay-cores", words(cores[:threads])]
    command += ["--publishers-cores", words(load[-1:]), "--subscribers-cores", words(load[:-1]), "--from", str(first)]
    command += ["--ramp", str(ramp), "--slo", "loss=0,failed=0,p99<100ms", "--steady", "3", "--settle", "1", "--cool-down", "0"]
    command += ["--repeats", "2", "--needed", "1", "--precision", "10", "--max-time", str(seconds), "--no-calibration", "--json", path]
    subprocess.run(command, check=False)


def row(threads, load_cores, record):
    held = max((it for it in record["probes"] if it["outcome"]["kind"] == "held"), key=lambda it: it["load"])
    figures = held["figures"]
    above = [it for it in record["probes"] if it["load"] > held["load"] and it["outcome"]["kind"] != "held"]
    next_one = min(above, key=lambda it: it["load"], default=None)
    limit = "no larger load was tried"
    if next_one and next_one["outcome"]["kind"] == "broke":
        limit = f"{next_one['outcome']['clauses'][0]['text']} broke at {next_one['load']:,}"
    elif next_one:
        limit = f"the load generator, at {next_one['load']:,}"
    return (
        f"| {threads} | {load_cores} | {held['load']:,} | {limit} | {figures['cpu_percent']:.0f} % "
        f"| {figures['cpu_us_per_delivered_object']:.1f} | {figures['latency_p99_ms']:.1f} | {figures['generator_cpu_percent']:.0f} % |"
    )


weir, page = sys.argv[1:3]
folder = flag("--records") or tempfile.mkdtemp()
names = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
machine = flag("--machine") or f"{names[0] if names else platform.machine()}, {len(names)} cores, Linux {platform.release()}"
rows = []
for threads, first, ramp, seconds in SEARCHES:
    path = os.path.join(folder, f"threads-{threads}.json")
    others = len(os.sched_getaffinity(0)) - threads
    if not os.path.exists(path) and others >= 2:
        search(weir, path, threads, first, ramp, seconds)
    if os.path.exists(path):
        record = json.load(open(path))
        cores = int(machine.split(" cores")[0].split()[-1]) - threads
        rows.append(row(threads, cores, record))
if not rows:
    sys.exit("error: this needs three cores or more")
section = [
    "## Threads of the relay",
    "",
    f"Measured on {machine}: `make results-threads`.",
    "",
    "| relay threads | cores of the load | largest load that held | limit | relay CPU | CPU µs/object | latency p99 ms | busiest core of the load |",
    "|--:|--:|--:|---|--:|--:|--:|--:|",
    *rows,
    "",
    "Subscribers of the audio profile, from one publisher; each thread of the relay has a core. Service level: loss=0,failed=0,p99<100ms. CPU",
    "is in per cent of one core. One search of about a minute each, without repetition, so neighbouring loads may change places.",
]
subprocess.run(["scripts/write-section.sh", page, "relay-threads"], input="\n".join(section), text=True, check=True)
