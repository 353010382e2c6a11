// Kills a publisher, the relay or a viewer again and again with SIGKILL, starts it again after a second as systemd does, and
// measures what the other viewers notice. One relay, one publisher, four viewers, all on loopback.
//
//     node scripts/kills.mjs WEIR --results FILE [--rounds COUNT] [--only publisher,relay,viewer]
//
// Rows of what is not measured stay. Needs ffmpeg and openssl in PATH. Exits with 1 if a gap is longer than 3 s, or a figure of the relay is wrong.

import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { cpus, loadavg, release, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

const [weir, ...flags] = process.argv.slice(2);
const flag = (name, otherwise) => (flags.includes(name) ? flags[flags.indexOf(name) + 1] : otherwise);
const results = flag("--results");
const rounds = Number(flag("--rounds", "50"));
const only = flag("--only", "publisher,relay,viewer").split(",");
if (!weir || !results || !(rounds >= 1)) {
  console.error("usage: kills.mjs WEIR --results FILE [--rounds COUNT] [--only publisher,relay,viewer]");
  process.exit(2);
}

const VIEWERS = 4;
const [PORT, ADMIN] = [21_540, 21_541];
/** `RestartSec` of packaging/weir-relay.service, in milliseconds. */
const RESTART_MS = 1000;
/**
 * The time from one kill to the next, in milliseconds; up to a second more, so that kills fall anywhere in a group. A client
 * gives up if it has had no session of 10 s for a minute, so a relay lives longer than that.
 */
const ROUND_MS = { publisher: 7000, relay: 12_000, viewer: 7000 };
const GAP_MAX = 3;

const folder = mkdtempSync(join(tmpdir(), "weir-kills-"));
const path = (name) => join(folder, name);
const children = new Set();

function start(...parameters) {
  const child = spawn(weir, parameters, { stdio: "ignore" });
  children.add(child);
  child.ended = new Promise((resolve) => child.once("exit", () => resolve(children.delete(child))));
  return child;
}

function kill(child, signal = "SIGKILL") {
  child.kill(signal);
  return child.ended;
}

async function until(what, look) {
  const deadline = Date.now() + 60_000;
  while (!(await look().catch(() => false))) {
    if (Date.now() > deadline) throw new Error(`waited in vain: ${what}`);
    await pause(50);
  }
}

async function metric(name) {
  const text = await (await fetch(`http://127.0.0.1:${ADMIN}/metrics`)).text();
  const line = text.split("\n").find((one) => one.startsWith(`${name} `));
  return Number(line.slice(name.length + 1));
}

// A client moves on to the next relay of its list, so one that waits for its relay has it there twice.
const url = `moqt://127.0.0.1:${PORT},moqt://localhost:${PORT}`;
const startRelay = () =>
  start("relay", "--listen", `127.0.0.1:${PORT}`, "--cert", path("certificate.pem"), "--key", path("key.pem"), "--admin", `127.0.0.1:${ADMIN}`);
const publish = () => start("live", "publish", url, "--insecure", "--realtime", "--input", path("clip.mp4"));
const play = (number) =>
  start("live", "play", url, "--insecure", "--patience", "20s", "--patience-again", "20s", "--json", path(`${number}.json`));

/** Returns the longest time without a new picture after each kill, until the next one, in seconds. */
function gaps(number, kills, roundMs) {
  const { frames } = JSON.parse(readFileSync(path(`${number}.json`), "utf8"));
  const shown = frames.map((frame) => frame.shown_us).filter((us) => us !== null).sort((one, other) => one - other);
  return kills.map((at, place) => {
    const end = kills[place + 1] ?? at + roundMs;
    const within = shown.filter((us) => us >= at * 1000 && us < end * 1000);
    if (within.length === 0) return Infinity;
    const times = [shown.findLast((us) => us < at * 1000) ?? at * 1000, ...within];
    return Math.max(...times.slice(1).map((us, next) => us - times[next])) / 1e6;
  });
}

/** Kills one of the processes in each round. Returns the gaps of the viewers that were not killed, and what was wrong. */
async function measure(victim) {
  let [relay, publisher] = [startRelay(), undefined];
  await until("the relay starts", async () => (await metric("weir_relay_sessions")) === 0);
  publisher = publish();
  await until("the stream is published", async () => (await metric("weir_relay_tracks")) > 0);
  const viewers = Array.from({ length: VIEWERS }, (_, number) => play(number));
  await until("the viewers play", async () => (await metric("weir_relay_subscriptions")) >= VIEWERS);
  await pause(3000);
  const kills = [];
  for (let round = 0; round < rounds; round += 1) {
    kills.push(Date.now());
    if (victim === "relay") {
      await kill(relay);
      await pause(RESTART_MS);
      relay = startRelay();
    } else if (victim === "publisher") {
      await kill(publisher);
      await pause(RESTART_MS);
      publisher = publish();
    } else {
      await kill(viewers[0]);
      await pause(RESTART_MS);
      viewers[0] = play(0);
    }
    await pause(ROUND_MS[victim] - RESTART_MS + Math.random() * 1000);
  }
  const wrong = [];
  const expect = async (name, value) => {
    // Killed peers are noticed when their connection has been idle for 30 s.
    await until(`${name} is ${value}`, async () => (await metric(name)) === value).catch((error) => wrong.push(error.message));
  };
  await expect("weir_relay_sessions", 1 + VIEWERS);
  await expect("weir_relay_sessions_violated_total", 0);
  await Promise.all(viewers.map((viewer) => kill(viewer, "SIGINT")));
  await kill(publisher, "SIGINT");
  for (const gauge of ["sessions", "subscriptions", "tracks"]) await expect(`weir_relay_${gauge}`, 0);
  await kill(relay);
  const others = victim === "viewer" ? [1, 2, 3] : [0, 1, 2, 3];
  return { gaps: others.flatMap((number) => gaps(number, kills, ROUND_MS[victim])), wrong };
}

async function main() {
  execFileSync("openssl", [
    "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "10", "-subj", "/CN=localhost",
    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", path("key.pem"), "-out", path("certificate.pem"),
  ], { stdio: "ignore" });
  const seconds = Math.ceil((rounds * (ROUND_MS.relay + 1000)) / 1000) + 60;
  execFileSync("ffmpeg", [
    "-hide_banner", "-loglevel", "error", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=24", "-t", String(seconds), "-pix_fmt", "yuv420p",
    "-c:v", "libx264", "-preset", "ultrafast", "-b:v", "300k", "-g", "24", "-bf", "0", "-sc_threshold", "0", "-f", "mp4",
    "-movflags", "cmaf+frag_every_frame+empty_moov+default_base_moof", path("clip.mp4"),
  ]);
  const page = readFileSync(results, "utf8");
  const section = page.slice(page.indexOf("<!-- kills begin"), page.indexOf("<!-- kills end"));
  const rows = [];
  let isGood = true;
  for (const victim of ["publisher", "relay", "viewer"]) {
    if (!only.includes(victim)) {
      rows.push(...section.split("\n").filter((line) => line.startsWith(`| ${victim} |`)));
      continue;
    }
    const { gaps: found, wrong } = await measure(victim);
    const sorted = found.toSorted((one, other) => one - other);
    const at = (share) => sorted[Math.min(sorted.length - 1, Math.ceil(share * sorted.length) - 1)];
    const over = found.filter((gap) => gap > GAP_MAX).length;
    const cells = [0.5, 0.95, 1].map((share) => (Number.isFinite(at(share)) ? at(share).toFixed(2) : "never again"));
    rows.push(`| ${victim} | ${rounds} | ${found.length} | ${cells.join(" | ")} | ${over} | ${wrong.join("; ") || "none"} |`);
    console.error(rows.at(-1));
    isGood &&= over === 0 && wrong.length === 0;
  }
  const text = [
    `Measured on ${new Date().toISOString().slice(0, 10)} on ${cpus()[0].model}, ${cpus().length} cores, Linux ${release()}, load average ${loadavg()[0].toFixed(1)} at the end: \`make kills\`.`, "",
    "| killed | times | gaps | p50 s | p95 s | longest s | above 3 s | wrong figures |", "|---|--:|--:|--:|--:|--:|--:|---|", ...rows,
  ].join("\n");
  execFileSync("scripts/write-section.sh", [results, "kills"], { input: text });
  return isGood;
}

try {
  process.exitCode = (await main()) ? 0 : 1;
} finally {
  await Promise.all([...children].map((child) => kill(child)));
  rmSync(folder, { recursive: true, force: true });
}
