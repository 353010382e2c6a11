#!/usr/bin/env python3
"""Prints what scripts/soak.sh measured, as Markdown. Exits with 1 if something was lost or grew.

usage: soak.py FOLDER MINUTES SUBSCRIBERS
"""
import collections, datetime, glob, json, os, platform, re, sys

folder, minutes, subscribers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def processor():
    names = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {len(names)} cores, Linux {platform.release()}"


def growth(rows, column):
    """Returns how much a column grows in an hour, by least squares."""
    times, values = [row[0] / 3600 for row in rows], [row[column] for row in rows]
    middle, mean = sum(times) / len(times), sum(values) / len(values)
    spread = sum((time - middle) ** 2 for time in times)
    return sum((time - middle) * (value - mean) for time, value in zip(times, values)) / spread if spread else 0.0


def verdict(path):
    """Returns what a report says between the progress and the name of its profile, on one line. An error of the program is all
    it says."""
    lines = [line for line in open(path).read().split("\n") if not re.match(r"\s*\d+ s  ", line)]
    end = next((place for place, line in enumerate(lines) if line.startswith("profiles/")), len(lines))
    return " ".join(line.strip() for line in lines[:end]) or "error: no report"


rows = [[float(field) for field in line.split()] for line in open(f"{folder}/samples") if len(line.split()) == 7]
if len(rows) < 8:
    sys.exit(f"only {len(rows)} samples")
later = [row for row in rows if row[0] >= rows[0][0] + (rows[-1][0] - rows[0][0]) / 4]
slo = json.load(open(f"{folder}/bench.json"))["slo"]
visits = len(open(f"{folder}/visits").readlines()) if os.path.exists(f"{folder}/visits") else 0
failures = sorted(glob.glob(f"{folder}/failed.*.txt"), key=os.path.getmtime)
verdicts = [verdict(path) for path in failures]
for path, text in zip(failures, verdicts):
    print(f"{os.path.basename(path)}: {text}", file=sys.stderr)
failed_visits = ", ".join(f"{count} {word}" for word, count in collections.Counter(line.split(":")[0] for line in verdicts).items()) or "0"
memory, descriptors, timers, heap = (growth(later, column) for column in (1, 2, 3, 6))
megabytes, heap_megabytes = ([row[column] / 1e6 for row in later] for column in (1, 6))

print(f"Measured on {datetime.date.today()} on {processor()}: `make soak MINUTES={minutes}`.\n")
print(f"{subscribers} subscribers stay for {minutes} minutes. Beside them, 40 subscribers and their publisher come and go all the while.\n")
print("| Figure | Value |")
print("|---|---:|")
print(f"| Objects sent | {rows[-1][4]:,.0f} |")
print(f"| Objects lost by those who stay | {slo['lost_objects']:,} |")
print(f"| Sessions established | {rows[-1][5]:,.0f} |")
print(f"| Runs of those who come and go, and those that did not hold | {visits:,}, {failed_visits} |")
print(f"| Resident memory after the first quarter | {min(megabytes):.1f} to {max(megabytes):.1f} MB |")
print(f"| Its growth in an hour | {memory / 1e6:+.2f} MB |")
print(f"| Heap after the first quarter, and its growth in an hour | {min(heap_megabytes):.1f} to {max(heap_megabytes):.1f} MB, {heap / 1e6:+.2f} MB |")
print(f"| Open file descriptors after the first quarter | {min(it[2] for it in later):.0f} to {max(it[2] for it in later):.0f} |")
print(f"| Timers after the first quarter | {min(it[3] for it in later):.0f} to {max(it[3] for it in later):.0f} |")
is_long = minutes >= 60
if not is_long:
    print("\nThis run is too short to judge growth: that takes an hour.")
has_grown = memory > 1e6 or descriptors > 1 or timers > subscribers
# In an invalid run, the client was late: that says nothing about the relay, unless it happens often.
invalid = sum(line.startswith("invalid") for line in verdicts)
took = int(open(f"{folder}/seconds").read())
has_ended_early = took < minutes * 60 - 5
if has_ended_early or slo["lost_objects"]:
    print(f"those who stay, after {took} s: {verdict(folder + '/bench.txt')}", file=sys.stderr)
has_failed = has_ended_early or len(failures) > invalid or invalid > max(1, visits / 100)
sys.exit(bool(slo["lost_objects"] or has_failed or is_long and has_grown))
