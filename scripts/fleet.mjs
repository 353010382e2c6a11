// Kills relays and NATS servers of a fleet, and measures what viewers notice. Three NATS servers, three relays; a publisher at the
// first relay, viewers at the third. Everything is on loopback.
//
//     node scripts/fleet.mjs WEIR --demo
//     node scripts/fleet.mjs WEIR --results FILE [--rounds COUNT] [--only kills,hop,cost,nats]
//
// Needs nats-server, ffmpeg and openssl in PATH. --results replaces the sections of FILE that were measured.

import { execFileSync, spawn } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus, loadavg, release, tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

const [weir, ...flags] = process.argv.slice(2);
const flag = (name, otherwise) => (flags.includes(name) ? flags[flags.indexOf(name) + 1] : otherwise);
const isDemo = flags.includes("--demo");
const results = flag("--results");
const rounds = Number(flag("--rounds", "20"));
const only = flag("--only", "kills,hop,cost,nats").split(",");
if (!weir || (!isDemo && !results) || !(rounds >= 1)) {
  console.error("usage: fleet.mjs WEIR --demo | --results FILE [--rounds COUNT] [--only kills,hop,cost,nats]");
  process.exit(2);
}

/** Viewers of each round. */
const VIEWERS = 3;
/** The longest wait for a state that has to come, in milliseconds. */
const PATIENCE_MS = 60_000;
const NATS_PORT = 21_400;
const RELAY_PORT = 21_440;
const ADMIN_PORT = 21_460;

const folder = mkdtempSync(join(tmpdir(), "weir-fleet-"));
const children = new Set();

/** Starts a program. It ends with this script. */
function start(command, parameters, output = "ignore") {
  const child = spawn(command, parameters, { stdio: ["ignore", output, "ignore"] });
  children.add(child);
  child.ended = new Promise((resolve) => child.once("exit", (code) => {
    children.delete(child);
    resolve(code);
  }));
  return child;
}

async function kill(child, signal = "SIGKILL") {
  child.kill(signal);
  return child.ended;
}

/** Waits until `look` returns something. */
async function until(what, look) {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = await look().catch(() => undefined);
    if (found) return found;
    if (Date.now() > deadline) throw new Error(`waited in vain: ${what}`);
    await pause(50);
  }
}

// NATS.

const nats = [];
const routes = [0, 1, 2].map((number) => `nats://127.0.0.1:${NATS_PORT + 10 + number}`).join(",");
const servers = [0, 1, 2].map((number) => `nats://127.0.0.1:${NATS_PORT + number}`).join(",");

function startNats(number) {
  nats[number] = start("nats-server", [
    "-a", "127.0.0.1", "-p", String(NATS_PORT + number), "-m", String(NATS_PORT + 20 + number), "-n", `n${number}`, "-js",
    "-sd", join(folder, `nats-${number}`), "--cluster_name", "weir", "--cluster", `nats://127.0.0.1:${NATS_PORT + 10 + number}`,
    "--routes", routes,
  ]);
}

/** Returns the server that leads the bucket of leases. */
async function leader() {
  for (let number = 0; number < 3; number += 1) {
    const answer = await fetch(`http://127.0.0.1:${NATS_PORT + 20 + number}/jsz?streams=1`).catch(() => undefined);
    const streams = (await answer?.json())?.account_details?.[0]?.stream_detail ?? [];
    const found = streams.find((one) => one.name === "KV_weir-fleet-leases")?.cluster?.leader;
    if (found) return Number(found.slice(1));
  }
  throw new Error("no server leads the bucket");
}

// Relays.

const files = { certificate: join(folder, "certificate.pem"), key: join(folder, "key.pem") };
const url = (number, scheme = "moqt") => `${scheme}://127.0.0.1:${RELAY_PORT + number}`;
const relays = [];

async function startRelay(number, scope) {
  const relay = start(weir, [
    "relay", "--listen", `127.0.0.1:${RELAY_PORT + number}`, "--cert", files.certificate, "--key", files.key,
    "--fleet", servers, "--set", `fleet.scope=${scope}`, "--set", "upstream.insecure=true",
    "--admin", `127.0.0.1:${ADMIN_PORT + number}`,
  ], "pipe");
  relays[number] = relay;
  for await (const _ of createInterface({ input: relay.stdout })) break;
  relay.stdout.resume();
}

/** Starts relays, and waits until they know each other's registry. */
async function startRelays(scope, count = 3) {
  for (let number = 0; number < count; number += 1) await startRelay(number, scope);
  for (let number = 0; number < count; number += 1) {
    await until("a relay joins its fleet", async () => (await metric(number, "weir_relay_fleet_stale")) === 0);
  }
}

async function stopRelays() {
  for (const relay of relays.splice(0)) if (relay && children.has(relay)) await kill(relay);
}

async function metric(number, name) {
  const answer = await fetch(`http://127.0.0.1:${ADMIN_PORT + number}/metrics`);
  const line = (await answer.text()).split("\n").find((one) => one.startsWith(`${name} `));
  return line === undefined ? undefined : Number(line.slice(name.length + 1));
}

// Live streams.

const clip = join(folder, "clip.mp4");

function publish() {
  const list = [0, 1, 2].map((number) => url(number)).join(",");
  return start(weir, ["live", "publish", list, "--insecure", "--realtime", "--input", clip]);
}

function play(number) {
  const report = join(folder, `viewer-${number}.json`);
  const list = [2, 1, 0].map((relay) => url(relay)).join(",");
  const child = start(weir, ["live", "play", list, "--insecure", "--patience", "20s", "--json", report]);
  return { child, report };
}

/** Returns the longest time without a new picture that ended after `since`, in seconds. */
function gap(report, since) {
  const { frames } = JSON.parse(readFileSync(report, "utf8"));
  const shown = frames.map((frame) => frame.shown_us).filter((us) => us !== null).sort((one, other) => one - other);
  const last = shown.at(-1) ?? 0;
  if (last < (since + 5000) * 1000) return Infinity;
  const gaps = shown.slice(1).map((us, place) => (us > since * 1000 ? us - shown[place] : 0));
  return Math.max(...gaps) / 1e6;
}

/** Kills a relay while a stream is played. Returns the gap of each viewer, in seconds. */
async function killRelay(victim, scope) {
  await startRelays(scope);
  const publisher = publish();
  await until("the stream is published", async () => (await metric(2, "weir_relay_fleet_namespaces")) === 1);
  const viewers = Array.from({ length: VIEWERS }, (_, number) => play(number));
  await until("the viewers play", async () => (await metric(2, "weir_relay_subscriptions")) >= VIEWERS);
  await pause(4000 + Math.random() * 1000);
  const since = Date.now();
  await kill(relays[victim]);
  await pause(10_000);
  await Promise.all(viewers.map(({ child }) => kill(child, "SIGINT")));
  await kill(publisher);
  await stopRelays();
  return viewers.map(({ report }) => gap(report, since));
}

// Numbers and tables.

function quantile(values, share) {
  const sorted = values.toSorted((one, other) => one - other);
  return sorted[Math.min(sorted.length - 1, Math.ceil(share * sorted.length) - 1)];
}

const number = (value, digits = 2) => (Number.isFinite(value) ? value.toFixed(digits) : "never");

function machine() {
  const load = loadavg()[0].toFixed(1);
  return `Measured on ${new Date().toISOString().slice(0, 10)} on ${cpus()[0].model}, ${cpus().length} cores, Linux ${release()}, load average ${load} at the end: \`make results-fleet\`.`;
}

/** Replaces a section of the results, or adds it. */
function write(name, title, lines) {
  const [begin, end] = [`<!-- fleet-${name} begin: made by make results-fleet -->`, `<!-- fleet-${name} end -->`];
  const section = [begin, "", `## ${title}`, "", machine(), "", ...lines, "", end].join("\n");
  const text = readFileSync(results, "utf8");
  const [from, to] = [text.indexOf(begin), text.indexOf(end)];
  const next = from < 0 ? `${text.trimEnd()}\n\n${section}\n` : text.slice(0, from) + section + text.slice(to + end.length);
  writeFileSync(results, next);
  console.error(section);
}

async function measureKills() {
  const rows = [];
  for (const [victim, name] of [[2, "the viewers' relay"], [0, "the publisher's relay"]]) {
    const gaps = [];
    for (let round = 0; round < rounds; round += 1) {
      const of = await killRelay(victim, `kill-${victim}-${round}`);
      console.error(`${name}, round ${round + 1}: ${of.map((one) => number(one)).join(", ")} s`);
      gaps.push(...of);
    }
    const row = [name, rounds, gaps.length, ...[0.5, 0.95, 1].map((share) => number(quantile(gaps, share)))];
    rows.push(`| ${row.join(" | ")} |`);
  }
  write("kills", "Gap of viewers when a relay is killed", [
    "| killed | times | viewers | p50 s | p95 s | longest s |", "|---|--:|--:|--:|--:|--:|", ...rows, "",
    `The gap is the longest time without a new picture after \`kill -9\`, in \`weir live play\` with three relays. Groups last one second.`,
  ]);
}

/** Runs a benchmark with the publisher at the first relay, and returns the report of subscribers at another one. */
async function bench(subscribersAt, subscribers, seconds, seed) {
  const common = ["--insecure", "--seed", String(seed), "--seconds", String(seconds)];
  const report = join(folder, `bench-${subscribersAt}.json`);
  const publishing = start(weir, [
    "bench", "profiles/audio.ini", "--relay", url(0), "--role", "publish", "--publish-flow", "publish",
    "--await-subscribers", String(subscribers), ...common,
  ]);
  await until("the publisher is there", async () => (await metric(subscribersAt, "weir_relay_sessions")) >= 0);
  const code = await start(weir, [
    "bench", "profiles/audio.ini", "--relay", url(subscribersAt), "--role", "subscribe", "--synchronized-clocks",
    "--subscribers", String(subscribers), "--json", report, ...common,
  ]).ended;
  if (code > 1) throw new Error(`weir bench ended with ${code}`);
  await kill(publishing);
  return JSON.parse(readFileSync(report, "utf8"));
}

const cpuSeconds = (pid) => {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
};

async function measureHop() {
  await startRelays("hop");
  const differences = [];
  for (let round = 0; round < 5; round += 1) {
    const near = await bench(0, 20, 8, round + 1);
    const far = await bench(2, 20, 8, round + 101);
    const [one, other] = [near, far].map((report) => report.tracks[0].latency.overall.p50_ms);
    console.error(`hop, round ${round + 1}: ${one} and ${other} ms`);
    differences.push([one, other]);
  }
  await stopRelays();
  const median = (place) => quantile(differences.map((pair) => pair[place]), 0.5);
  const added = quantile(differences.map(([one, other]) => other - one), 0.5);
  write("hop", "Latency of one more relay", [
    "| subscribers at | p50 ms |", "|---|--:|", `| the publisher's relay | ${number(median(0), 3)} |`,
    `| another relay | ${number(median(1), 3)} |`, `| median of the differences of pairs | ${number(added, 3)} |`, "",
    "20 subscribers of the audio profile, 8 s, five interleaved pairs; publisher and subscribers on one clock.",
  ]);
}

async function measureCost() {
  const rows = [];
  for (const [others, viewers] of [[1, 50], [3, 50], [3, 10]]) {
    const scope = `cost-${others}-${viewers}`;
    await startRelays(scope, others + 1);
    const seconds = 10;
    const common = ["--insecure", "--seed", "7", "--seconds", String(seconds)];
    const publishing = start(weir, [
      "bench", "profiles/audio.ini", "--relay", url(0), "--role", "publish", "--publish-flow", "publish",
      "--await-subscribers", String(others * viewers), ...common,
    ]);
    const before = cpuSeconds(relays[0].pid);
    const received = Array.from({ length: others }, (_, place) => start(weir, [
      "bench", "profiles/audio.ini", "--relay", url(place + 1), "--role", "subscribe", "--synchronized-clocks",
      "--subscribers", String(viewers), ...common,
    ]).ended);
    await Promise.all(received);
    const cpu = cpuSeconds(relays[0].pid) - before;
    const objects = await metric(0, "weir_relay_datagrams_received_total") ?? 50 * seconds;
    await kill(publishing);
    await stopRelays();
    const row = [others, viewers, others * viewers, number((cpu * 1e6) / objects, 0)];
    console.error(`cost: ${row.join(", ")}`);
    rows.push(`| ${row.join(" | ")} |`);
  }
  write("cost", "Cost at the publisher's relay", [
    "| other relays | viewers at each | viewers | CPU µs per published object |", "|--:|--:|--:|--:|", ...rows, "",
    "CPU time of the publisher's relay over the whole run, with joins, over the objects that its publisher sent (audio profile, 10 s).",
  ]);
}

async function measureNats() {
  const rows = [];
  const add = (what, found) => {
    console.error(`${what}: ${found}`);
    rows.push(`| ${what} | ${found} |`);
  };
  await startRelays("nats");
  const publisher = publish();
  await until("the stream is published", async () => (await metric(2, "weir_relay_fleet_namespaces")) === 1);
  const viewers = Array.from({ length: VIEWERS }, (_, one) => play(one));
  await until("the viewers play", async () => (await metric(2, "weir_relay_subscriptions")) >= VIEWERS);
  const first = await leader();
  let since = Date.now();
  await kill(nats[first]);
  const known = start(weir, ["live", "publish", url(1), "--insecure", "--realtime", "--input", clip, "--namespace", "second"]);
  await until("a new namespace is found", async () => (await metric(2, "weir_relay_fleet_namespaces")) === 2);
  add("leader of NATS killed: a new namespace is found after", `${number((Date.now() - since) / 1000, 1)} s`);
  await kill(known);
  startNats(first);
  await pause(8000);
  const gone = [(first + 1) % 3, (first + 2) % 3];
  for (const one of gone) await kill(nats[one]);
  const lost = Date.now();
  await until("the map is stale", async () => (await metric(2, "weir_relay_fleet_stale")) === 1);
  add("quorum of NATS lost: a relay says that its map is stale after", `${number((Date.now() - lost) / 1000, 1)} s`);
  const ready = await fetch(`http://127.0.0.1:${ADMIN_PORT + 2}/readyz`);
  add("readiness meanwhile", `status ${ready.status}, \`${(await ready.text()).trim()}\``);
  const late = join(folder, "late.json");
  const watcher = start(weir, ["live", "play", url(1), "--insecure", "--patience", "20s", "--time", "5s", "--json", late]);
  await watcher.ended;
  const seen = JSON.parse(readFileSync(late, "utf8")).frames.length;
  add("a viewer who comes then, at a relay without a link", seen > 0 ? `plays: ${seen} frames in 5 s` : "plays nothing");
  await pause(Math.max(0, 60_000 - (Date.now() - lost)));
  for (const one of gone) startNats(one);
  const back = Date.now();
  await until("the map is current", async () => (await metric(2, "weir_relay_fleet_stale")) === 0);
  add("quorum back after 60 s: the map is current after", `${number((Date.now() - back) / 1000, 1)} s`);
  await pause(2000);
  await Promise.all(viewers.map(({ child }) => kill(child, "SIGINT")));
  const gaps = viewers.map(({ report }) => gap(report, since));
  add("longest time without a new picture, over all of it", `${number(Math.max(...gaps))} s`);
  await kill(publisher);
  await stopRelays();
  write("nats", "Failures of NATS", ["| event | result |", "|---|---|", ...rows, "", `${VIEWERS} viewers play a stream over one link all the time.`]);
}

async function demo() {
  await startRelays("demo");
  const publisher = publish();
  await until("the stream is published", async () => (await metric(2, "weir_relay_fleet_namespaces")) === 1);
  const hash = new X509Certificate(readFileSync(files.certificate)).fingerprint256.replaceAll(":", "").toLowerCase();
  const page = start(weir, [
    "live", "watch", "--page", "127.0.0.1:0", "--certificate-hash", hash,
    "--relay", [2, 1, 0].map((one) => url(one, "https")).join(","),
  ], "pipe");
  for await (const line of createInterface({ input: page.stdout })) {
    console.log(`Open ${JSON.parse(line).page} in a browser. Its relay is killed in 20 seconds.`);
    break;
  }
  const viewer = play(0);
  await pause(20_000);
  const since = Date.now();
  await kill(relays[2]);
  console.log("The viewers' relay was killed.");
  await pause(10_000);
  await kill(viewer.child, "SIGINT");
  console.log(`A player without a screen had no new picture for ${number(gap(viewer.report, since))} s. The page plays until Ctrl-C.`);
  await Promise.race([publisher.ended, new Promise((resolve) => process.once("SIGINT", resolve))]);
}

try {
  execFileSync("openssl", [
    "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "10", "-subj", "/CN=localhost",
    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", files.key, "-out", files.certificate,
  ], { stdio: "ignore" });
  execFileSync("ffmpeg", [
    "-hide_banner", "-loglevel", "error", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=24", "-t", "240", "-pix_fmt", "yuv420p",
    "-c:v", "libx264", "-preset", "ultrafast", "-b:v", "300k", "-g", "24", "-bf", "0", "-sc_threshold", "0", "-f", "mp4",
    "-movflags", "cmaf+frag_every_frame+empty_moov+default_base_moof", clip,
  ]);
  for (const one of [0, 1, 2]) startNats(one);
  if (isDemo) {
    await demo();
  } else {
    for (const [name, measure] of [["kills", measureKills], ["hop", measureHop], ["cost", measureCost], ["nats", measureNats]]) {
      if (only.includes(name)) await measure();
    }
  }
} finally {
  await Promise.all([...children].map((child) => kill(child)));
  rmSync(folder, { recursive: true, force: true });
}
