// Plays for a given time (an hour), and fails if memory or delay grew.
//
//     WEIR=target/release/weir node web/browser/soak.mjs [MINUTES [RESULTS]]
//
// RESULTS names a Markdown file in which this command replaces its section, such as docs/results.md. Each sample is a
// line of JSON on standard error. Caches need ten minutes to fill, so in less than half an hour their growth may count.

import { readFileSync, writeFileSync } from "node:fs";
import { cpus, loadavg, release } from "node:os";

import { childOf, residentMb } from "./processes.js";
import { Stage, WEIR } from "./stage.js";
import { trends } from "./trend.js";

const SAMPLE_MS = 30_000;
/**
 * Every so many samples the heap is measured. This needs a full garbage collection, which pauses the page, the longer
 * the larger the heap is.
 */
const COLLECT_EVERY = 10;
/**
 * Samples after a collection whose last minute includes it. Their delays are replaced by those of the sample before.
 */
const DISTURBED = 2;
/**
 * If other machines take more than this share of the processor time (in per cent, by the hypervisor), the delays of
 * that minute do not count.
 */
const STOLEN_MAX = 5;
/** The share of samples to which this may apply. Beyond it, the machine is not suitable. */
const STOLEN_SAMPLES_MAX = 1 / 3;
/** The measured values, and how far the median of the last quarter may be above that of an earlier one: the second, when
 * caches are full, or for the heap the third, because half an hour of frames is kept individually. */
const BOUNDS = [
  { name: "heap MB", since: 3, ratioMax: 1.15, slack: 1 },
  { name: "buffers MB", since: 2, ratioMax: 1.25, slack: 5 },
  { name: "renderer MB", since: 2, ratioMax: 1.15, slack: 10 },
  { name: "GPU MB", since: 2, ratioMax: 1.15, slack: 10 },
  { name: "browser MB", since: 2, ratioMax: 1.15, slack: 10 },
  { name: "relay MB", since: 2, ratioMax: 1.15, slack: 4 },
  { name: "origin MB", since: 2, ratioMax: 1.15, slack: 4 },
  { name: "latency ms", since: 2, ratioMax: 1.15, slack: 50 },
  { name: "p95 ms", since: 2, ratioMax: 1.25, slack: 100 },
];

// For relay and origin, which inherit this environment: no huge pages. The kernel periodically fills huge pages from
// which pieces were freed, which looks like a growth of megabytes.
process.env.MIMALLOC_ALLOW_THP = "0";

const minutes = Number(process.argv[2] ?? 60);
const results = process.argv[3];
if (WEIR === "" || !(minutes >= 2)) {
  console.error("usage: WEIR=target/release/weir node web/browser/soak.mjs [MINUTES, from 2 [RESULTS]]");
  process.exit(2);
}

const stage = new Stage();
try {
  const { program, ready } = await stage.weir(["live", "watch", "--page", "127.0.0.1:0"]);
  const watched = await stage.open(ready.page);
  await watched.says("live");
  await watched.page.click("#sound");
  const samples = await play(/** @type {number} */ (program.child.pid), watched);
  const found = trends(samples, BOUNDS);
  const stolen = samples.filter((sample) => sample["stolen %"] > STOLEN_MAX).length;
  const report = describe(samples, found, stolen);
  console.log(report);
  if (results) replaceSection(results, report);
  const grown = found.filter(({ isFlat }) => !isFlat).map(({ name }) => name);
  if (grown.length > 0) console.error(`grew: ${grown.join(", ")}`);
  if (stage.complaints.length > 0) console.error(`the page complained: ${stage.complaints.join("; ")}`);
  const isQuiet = stolen <= samples.length * STOLEN_SAMPLES_MAX;
  if (!isQuiet) console.error(`the machine was not quiet: others took its time in ${stolen} of ${samples.length} samples`);
  if (grown.length > 0 || stage.complaints.length > 0 || !isQuiet) process.exitCode = 1;
} finally {
  await stage.end();
}

/**
 * @param {number} origin the process that publishes
 * @param {Awaited<ReturnType<Stage["open"]>>} watched
 */
async function play(origin, watched) {
  const devtools = await watched.page.context().newCDPSession(watched.page);
  await devtools.send("HeapProfiler.enable");
  const browser = await stage.chromium?.newBrowserCDPSession();
  const relay = childOf(origin, "relay");
  if (!browser || relay === undefined) throw new Error("there is no browser, or no relay");
  /** @type {Record<string, number>[]} */
  const samples = [];
  let heap = { usedSize: NaN, backingStorageSize: NaN };
  /** @type {any} */
  let delays = {};
  let time = machineTime();
  let stolenBefore = 0;
  const begun = performance.now();
  for (let number = 1; number * SAMPLE_MS <= minutes * 60_000; number++) {
    await watched.page.waitForTimeout(Math.max(0, begun + number * SAMPLE_MS - performance.now()));
    const { lately, video, dropped, jumps, connection } = await watched.figures();
    if (number === 1 || number % COLLECT_EVERY === 0) {
      await devtools.send("HeapProfiler.collectGarbage");
      heap = await devtools.send("Runtime.getHeapUsage");
    }
    const since = number % COLLECT_EVERY;
    const isDisturbed = (number > COLLECT_EVERY && since > 0 && since <= DISTURBED) || (number > 1 && number <= 1 + DISTURBED);
    const later = machineTime();
    const stolen = (100 * (later.stolen - time.stolen)) / Math.max(1, later.all - time.all);
    time = later;
    // The delays are of the last minute: of the time of this sample and of the one before.
    const isRobbed = number > 1 && Math.max(stolen, stolenBefore) > STOLEN_MAX;
    stolenBefore = stolen;
    if (!isDisturbed && !isRobbed) delays = lately;
    const { processInfo } = await browser.send("SystemInfo.getProcessInfo");
    const resident = (/** @type {string} */ type) =>
      processInfo.filter((one) => one.type === type).reduce((sum, { id }) => sum + residentMb(id), 0);
    const sample = {
      minute: (number * SAMPLE_MS) / 60_000,
      "machine load": loadavg()[0],
      "stolen %": stolen,
      "heap MB": heap.usedSize / 1e6,
      "buffers MB": heap.backingStorageSize / 1e6,
      "renderer MB": resident("renderer"),
      "GPU MB": resident("GPU"),
      "browser MB": resident("browser"),
      "relay MB": residentMb(relay),
      "origin MB": residentMb(origin),
      "latency ms": delays.latency_median * 1e3,
      "p95 ms": delays.latency_p95 * 1e3,
      drawn: video.drawn,
      "arrival ms": delays.queueing_mean * 1e3,
      dropped: dropped.late + dropped.overflow + dropped.undecodable + dropped.behind + video.lateForDecoder,
      jumps,
      "freezes/min": delays.freezes,
      "decoder errors": video.errors,
      reconnects: connection.reconnects,
    };
    samples.push(sample);
    console.error(JSON.stringify(sample));
  }
  return samples;
}

/** Returns the ticks of all cores since the start of the machine, and those that the hypervisor gave to others. */
function machineTime() {
  const [line] = readFileSync("/proc/stat", "utf8").split("\n");
  const ticks = line.trim().split(/ +/).slice(1, 9).map(Number);
  return { all: ticks.reduce((sum, one) => sum + one, 0), stolen: ticks[7] ?? 0 };
}

/**
 * @param {Record<string, number>[]} samples
 * @param {import("./trend.js").Trend[]} found
 * @param {number} stolen samples in whose time others used too much of the machine
 */
function describe(samples, found, stolen) {
  const columns = Object.keys(samples[0]);
  const line = (/** @type {string[]} */ cells) => `| ${cells.join(" | ")} |`;
  const figure = (/** @type {string} */ name, /** @type {number} */ value) => value.toFixed(["minute", "heap MB", "buffers MB", "stolen %"].includes(name) ? 1 : 0);
  const every = Math.max(1, Math.round(samples.length / 12));
  const rows = samples.filter((_, place) => place === 0 || (place + 1) % every === 0);
  return [
    `Headless Chromium with sound, a sample every ${SAMPLE_MS / 1000} s. \`heap\` and \`buffers\` are read every ${(COLLECT_EVERY * SAMPLE_MS) / 60_000} minutes, after a garbage collection; other memory is resident memory. Delays leave out samples with a garbage collection, and the ${stolen} of ${samples.length} samples in which the hypervisor gave more than ${STOLEN_MAX} % of the machine to others.`,
    "",
    line(["", "1st quarter", "2nd", "3rd", "4th", "growth", ""]),
    line(["---", ...Array(5).fill("---:"), "---"]),
    ...found.map(({ name, medians, since, ratio, isFlat }) =>
      line([`${name}, median`, ...medians.map((value) => figure(name, value)), `${ratio.toFixed(2)} since the ${since === 2 ? "2nd" : "3rd"}`, isFlat ? "flat" : "**grew**"])),
    "",
    line(columns),
    line(columns.map(() => "---:")),
    ...rows.map((sample) => line(columns.map((name) => figure(name, sample[name])))),
  ].join("\n");
}

/**
 * @param {string} path
 * @param {string} body
 */
function replaceSection(path, body) {
  const text = readFileSync(path, "utf8");
  const [{ model }] = cpus();
  const date = new Date().toISOString().slice(0, 10);
  const source = `Measured on ${date} on ${model}, ${cpus().length} cores, Linux ${release()}: \`make soak-web MINUTES=${minutes}\`.`;
  const section = `<!-- soak-web begin: made by \`make soak-web MINUTES=${minutes}\` -->\n\n## The browser page for ${minutes} minutes\n\n${source}\n\n${body}\n\n<!-- soak-web end -->`;
  const there = /<!-- soak-web begin: .*?-->.*?<!-- soak-web end -->/s;
  writeFileSync(path, there.test(text) ? text.replace(there, () => section) : `${text.trimEnd()}\n\n${section}\n`);
}
