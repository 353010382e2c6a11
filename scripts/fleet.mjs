// Kills relays and NATS servers of a fleet, and measures what viewers notice. Three NATS servers, three relays; a publisher at the
// first relay, viewers at the third: players without a screen, and a page in Chromium.
//
//     node scripts/fleet.mjs WEIR --demo
//     node scripts/fleet.mjs WEIR --results FILE [--rounds COUNT] [--only kills,drops,cuts,stops,restarts,hop,cost,nats]
//     node scripts/fleet.mjs WEIR --hops FILE [--viewers COUNT] [--seconds SECONDS]
//     cargo test ... | node scripts/fleet.mjs - --sim FILE
//
// Needs nats-server, ffmpeg and openssl in PATH, and for the page Chromium and `npm ci` in web/. Everything is on loopback, but
// drops and cuts give each relay a network namespace of its own, and need root, unshare, ip and nft. --results replaces the
// sections of FILE that were measured, --hops the sections hop and cost, within five minutes. --sim writes the table of a simulated
// fleet that a test has printed.

import { execFileSync, spawn, spawnSync } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { cpus, loadavg, release, tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

const [weir, ...flags] = process.argv.slice(2);
const flag = (name, otherwise) => (flags.includes(name) ? flags[flags.indexOf(name) + 1] : otherwise);
const isDemo = flags.includes("--demo");
const results = flag("--results") ?? flag("--hops") ?? flag("--sim");
const rounds = Number(flag("--rounds", "20"));
const only = flag("--only", flags.includes("--hops") ? "hop,cost" : "kills,drops,cuts,restarts,hop,cost,nats").split(",");
/** Whether each relay has a network namespace of its own; this script has one too. */
const isApart = flags.includes("--apart");
/** Most viewers at each relay, and how long objects are sent to them, in seconds. */
const most = Number(flag("--viewers", "100"));
const seconds = Number(flag("--seconds", "10"));
if (!weir || (!isDemo && !results) || !(rounds >= 1) || !(most >= 1) || !(seconds >= 4)) {
  console.error("usage: fleet.mjs WEIR --demo | --results FILE [--rounds COUNT] [--only kills,drops,cuts,stops,restarts,hop,cost,nats]");
  console.error("                      | --hops FILE [--viewers COUNT] [--seconds SECONDS, at least 4] | --sim FILE");
  process.exit(2);
}

/** Players without a screen in each round. */
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
/** Where NATS and all clients are. */
const HUB = isApart ? "10.78.0.1" : "127.0.0.1";
const servers = [0, 1, 2].map((number) => `nats://${HUB}:${NATS_PORT + number}`).join(",");

function startNats(number) {
  nats[number] = start("nats-server", [
    "-a", HUB, "-p", String(NATS_PORT + number), "-m", String(NATS_PORT + 20 + number), "-n", `n${number}`, "-js",
    "-sd", join(folder, `nats-${number}`), "--cluster_name", "weir", "--cluster", `nats://127.0.0.1:${NATS_PORT + 10 + number}`,
    "--routes", routes,
  ]);
}

/** Returns the server that leads the bucket of leases. */
async function leader() {
  for (let number = 0; number < 3; number += 1) {
    const answer = await fetch(`http://${HUB}:${NATS_PORT + 20 + number}/jsz?streams=1`).catch(() => undefined);
    const streams = (await answer?.json())?.account_details?.[0]?.stream_detail ?? [];
    const found = streams.find((one) => one.name === "KV_weir-fleet-leases")?.cluster?.leader;
    if (found) return Number(found.slice(1));
  }
  throw new Error("no server leads the bucket");
}

// Relays.

const files = { certificate: join(folder, "certificate.pem"), key: join(folder, "key.pem") };
const host = (number) => (isApart ? `10.78.0.${10 + number}` : "127.0.0.1");
const space = (number) => `weir-${process.pid}-${number}`;
const url = (number, scheme = "moqt") => `${scheme}://${host(number)}:${RELAY_PORT + number}`;
const relays = [];

async function startRelay(number, scope) {
  const [program, ...before] = isApart ? ["ip", "netns", "exec", space(number), weir] : [weir];
  const relay = start(program, [
    ...before, "relay", "--listen", `${host(number)}:${RELAY_PORT + number}`, "--cert", files.certificate, "--key", files.key,
    "--fleet", servers, "--set", `fleet.scope=${scope}`, "--set", "upstream.insecure=true",
    "--admin", `${host(number)}:${ADMIN_PORT + number}`,
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
  const answer = await fetch(`http://${host(number)}:${ADMIN_PORT + number}/metrics`);
  const line = (await answer.text()).split("\n").find((one) => one.startsWith(`${name} `));
  return line === undefined ? undefined : Number(line.slice(name.length + 1));
}

// Networks.

function ip(line) {
  execFileSync("ip", line.split(" "));
}

/** Gives each relay a network namespace, with a switch between them in that of this script. */
function separate() {
  for (const line of ["link set lo up", "link add hub type bridge", `addr add ${HUB}/24 dev hub`, "link set hub up"]) ip(line);
  for (const number of [0, 1, 2]) {
    ip(`netns add ${space(number)}`);
    ip(`link add port${number} type veth peer name eth0 netns ${space(number)}`);
    ip(`link set port${number} master hub up`);
    for (const line of ["link set lo up", `addr add ${host(number)}/24 dev eth0`, "link set eth0 up"]) ip(`-n ${space(number)} ${line}`);
  }
}

/** Drops packets where they come in, so that no sender is told. */
function drop(rule, device, ...within) {
  const chain = `type filter hook ingress device "${device}" priority 0;\n${rule}`;
  const [program, ...before] = [...within, "nft"];
  execFileSync(program, [...before, "-f", "-"], { input: `table netdev weir {\nchain loss {\n${chain}\n}\n}\n` });
}

const inside = (number) => ["ip", "netns", "exec", space(number)];

/** From now on no packet to and from a relay arrives. */
function isolate(number) {
  drop("policy drop;", "eth0", ...inside(number));
  drop("policy drop;", `port${number}`);
}

/** From now on no packet between clients and a relay arrives; other relays and NATS reach it. */
function cut(number) {
  drop(`ip saddr ${HUB} meta l4proto udp drop;`, "eth0", ...inside(number));
  drop(`ip daddr ${HUB} meta l4proto udp drop;`, `port${number}`);
}

function connect(number) {
  execFileSync("ip", ["netns", "exec", space(number), "nft", "flush", "ruleset"]);
  execFileSync("nft", ["flush", "ruleset"]);
}

// Live streams.

const clip = join(folder, "clip.mp4");

function publish() {
  return start(weir, ["live", "publish", from(0), "--insecure", "--realtime", "--input", clip]);
}

/** Returns all relays for a client that begins at this one. */
const from = (first, scheme) => [0, 2, 1].map((step) => url((first + step) % 3, scheme)).join(",");

function play(number, first = 2, ...more) {
  const report = join(folder, `viewer-${number}.json`);
  const child = start(weir, ["live", "play", from(first), "--insecure", "--patience", "20s", "--json", report, ...more]);
  return { child, report };
}

/** The browser, where there is one. */
let stage;

async function startBrowser() {
  if (!existsSync("web/node_modules/playwright-core")) {
    console.error("No page is measured: `npm ci` in web/ and Chromium are missing.");
    return;
  }
  const { Stage } = await import("../web/browser/stage.js");
  stage = new Stage();
  await stage.browser();
}

/** Starts the server of a page, and returns the address. */
async function servePage(first) {
  const hash = new X509Certificate(readFileSync(files.certificate)).fingerprint256.replaceAll(":", "").toLowerCase();
  const server = start(weir, [
    "live", "watch", "--page", "127.0.0.1:0", "--certificate-hash", hash, "--relay", from(first, "https"),
  ], "pipe");
  for await (const line of createInterface({ input: server.stdout })) return { server, address: JSON.parse(line).page };
  throw new Error("the server of the page ended");
}

/** Opens a page that plays. The result ends it, and returns its frames. */
async function watch(first = 2) {
  const { server, address } = await servePage(first);
  const { page } = await stage.open(address);
  await page.waitForFunction(`document.getElementById("state").textContent === "live"`, { timeout: PATIENCE_MS });
  return async () => {
    const { frames } = await page.evaluate("weir.export()");
    await page.context().close();
    await kill(server);
    return frames;
  };
}

const framesOf = (report) => JSON.parse(readFileSync(report, "utf8")).frames;

/** Returns the longest time without a new picture that ended after `since`, in seconds. */
function gap(frames, since) {
  const shown = frames.map((frame) => frame.shown_us).filter((us) => us !== null).sort((one, other) => one - other);
  const last = shown.at(-1) ?? 0;
  if (last < (since + 5000) * 1000) return Infinity;
  const gaps = shown.slice(1).map((us, place) => (us > since * 1000 ? us - shown[place] : 0));
  return Math.max(...gaps) / 1e6;
}

/** Lets a relay fail while a stream is played. Returns the gaps of the players without a screen and of pages, in seconds. */
async function failRelay(victim, fail, scope) {
  await startRelays(scope);
  const publisher = publish();
  await until("the stream is published", async () => (await metric(2, "weir_relay_fleet_namespaces")) === 1);
  const viewers = Array.from({ length: VIEWERS }, (_, number) => play(number));
  await until("the viewers play", async () => (await metric(2, "weir_relay_subscriptions")) >= VIEWERS);
  const leavePage = stage && await watch();
  await pause(4000 + Math.random() * 1000);
  const since = Date.now();
  fail(victim);
  await pause(10_000);
  await Promise.all(viewers.map(({ child }) => kill(child, "SIGINT")));
  const players = viewers.map(({ report }) => gap(framesOf(report), since));
  const pages = leavePage ? [gap(await leavePage(), since)] : [];
  await kill(publisher);
  await stopRelays();
  return { players, pages };
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
function write(name, title, lines, [target, how] = ["results-fleet", machine()]) {
  const [begin, end] = [`<!-- fleet-${name} begin: made by make ${target} -->`, `<!-- fleet-${name} end -->`];
  const section = [begin, "", `## ${title}`, "", how, "", ...lines, "", end].join("\n");
  const text = readFileSync(results, "utf8");
  const [from, to] = [text.indexOf(begin), text.indexOf(end)];
  const next = from < 0 ? `${text.trimEnd()}\n\n${section}\n` : text.slice(0, from) + section + text.slice(to + end.length);
  writeFileSync(results, next);
  console.error(section);
}

/** The ways in which a relay fails: the title of the section, what happens, and how. */
const FAILURES = {
  kills: ["Gap of viewers when a relay is killed", "`kill -9`", (number) => relays[number].kill("SIGKILL")],
  stops: ["Gap of viewers when a relay stands still", "`kill -STOP`", (number) => relays[number].kill("SIGSTOP")],
  drops: ["Gap of viewers when all packets of a relay are dropped", "the loss of all packets to and from the relay", isolate],
  cuts: [
    "Gap of viewers when clients cannot reach a relay",
    "the loss of all packets between the relay and clients, while other relays and NATS reach it", cut,
  ],
};

/** Measures the gap of viewers after a relay fails. */
async function measureFailures(name) {
  const rows = [];
  const [title, what, fail] = FAILURES[name];
  await startBrowser();
  for (const [victim, of] of [[2, "the viewers' relay"], [0, "the publisher's relay"]]) {
    const gaps = { players: [], pages: [] };
    for (let round = 0; round < rounds; round += 1) {
      const { players, pages } = await failRelay(victim, fail, `${name}-${victim}-${round}`);
      if (isApart) connect(victim);
      console.error(`${of}, round ${round + 1}: ${players.map((one) => number(one)).join(", ")} s; pages: ${pages.map((one) => number(one)).join(", ")} s`);
      gaps.players.push(...players);
      gaps.pages.push(...pages);
    }
    for (const [viewers, all] of [["`weir live play`", gaps.players], ["page in Chromium", gaps.pages]]) {
      const figures = [0.5, 0.95, 1].map((share) => number(quantile(all, share)));
      if (all.length > 0) rows.push(`| ${[of, rounds, viewers, all.length, ...figures].join(" | ")} |`);
    }
  }
  await stage?.end();
  write(name, title, [
    "| relay | times | viewers | gaps | p50 s | p95 s | longest s |", "|---|--:|---|--:|--:|--:|--:|", ...rows, "",
    `The gap is the longest time without a new picture after ${what}.`,
    "Groups last one second, and all clients know three relays.",
  ]);
}

/** Measures failures in a network namespace of their own, which this script needs to drop packets. */
async function measureApart(name) {
  if (isApart) {
    separate();
    for (const one of [0, 1, 2]) startNats(one);
    return measureFailures(name);
  }
  if (process.getuid() !== 0) throw new Error(`${name} needs root: choose others with --only`);
  const again = [...process.argv.slice(1, 3), "--results", results, "--rounds", String(rounds), "--only", name, "--apart"];
  const child = spawn("unshare", ["--net", process.execPath, ...again], { stdio: "inherit" });
  const code = await new Promise((resolve) => child.once("exit", resolve));
  if (code !== 0) throw new Error(`${name} could not be measured`);
}

/** Restarts the relays one after the other, while a stream is published and played at all of them. Clients follow GOAWAY. */
async function measureRestarts() {
  const [scope, times] = ["restarts", Math.min(rounds, 5)];
  await startBrowser();
  await startRelays(scope);
  const publisher = publish();
  await until("the stream is published", async () => (await metric(2, "weir_relay_fleet_namespaces")) === 1);
  const players = Array.from({ length: 3 * VIEWERS }, (_, one) => play(one, one % 3, "--join", "current"));
  const pages = stage ? [await watch(0), await watch(1), await watch(2)] : [];
  await pause(5000);
  const took = [];
  for (let round = 0; round < 3 * times; round += 1) {
    const [number, began] = [round % 3, Date.now()];
    await kill(relays[number], "SIGTERM");
    took.push((Date.now() - began) / 1000);
    await startRelay(number, scope);
    await until("a relay joins its fleet", async () => (await metric(number, "weir_relay_fleet_stale")) === 0);
    await pause(3000);
  }
  await Promise.all(players.map(({ child }) => kill(child, "SIGINT")));
  const seen = [["`weir live play --join current`", players.map(({ report }) => framesOf(report))], ["page in Chromium", []]];
  for (const leave of pages) seen[1][1].push(await leave());
  await stage?.end();
  await kill(publisher);
  await stopRelays();
  const rows = seen.filter(([, all]) => all.length > 0).map(([viewers, all]) => {
    const lost = all.map((frames) => {
      const numbers = frames.filter((frame) => frame.arrived_us !== null).map((frame) => frame.number);
      return Math.max(...numbers) - Math.min(...numbers) + 1 - new Set(numbers).size;
    });
    const longest = Math.max(...all.map((frames) => gap(frames, 0)));
    console.error(`restarts, ${viewers}: ${lost.join(", ")} frames lost`);
    const sum = (values) => values.reduce((total, one) => total + one, 0);
    return `| ${[viewers, all.length, sum(all.map((frames) => frames.length)), sum(lost), number(longest)].join(" | ")} |`;
  });
  write("restarts", "Rolling restart", [
    "| viewers | number | frames received | frames lost | longest time without a new picture s |", "|---|--:|--:|--:|--:|", ...rows, "",
    `Each of three relays is restarted ${times} times, one after the other, while a third of the viewers are at each. From SIGTERM a relay`,
    `takes ${number(Math.max(...took), 1)} s at most to end. Publisher and viewers follow GOAWAY.`,
  ]);
}

/** Returns the CPU time of a process so far, in microseconds. */
function cpuMicroseconds(pid) {
  const folder = `/proc/${pid}/task`;
  const threads = readdirSync(folder).map((thread) => readFileSync(`${folder}/${thread}/schedstat`, "utf8"));
  return threads.reduce((sum, line) => sum + Number(line.split(" ")[0]) / 1000, 0);
}

/** Starts a publisher at the first relay, and subscribers at others: so many at each of `places`. */
function bench(places, viewers, seed) {
  const common = ["--insecure", "--seed", String(seed), "--seconds", String(seconds), "--json"];
  const report = (name) => join(folder, `bench-${name}.json`);
  const run = (name, relay, ...more) => start(weir, [
    "bench", "profiles/audio-short.ini", "--relay", url(relay), ...common, report(name), ...more,
  ]);
  const all = String(places.length * viewers);
  const publisher = run("publisher", 0, "--role", "publish", "--publish-flow", "publish", "--await-subscribers", all);
  const subscribers = places.map((relay) => run(
    relay, relay, "--role", "subscribe", "--synchronized-clocks", "--subscribers", String(viewers),
  ).ended);
  const reports = async () => {
    await Promise.all(subscribers);
    await kill(publisher);
    return places.map((relay) => JSON.parse(readFileSync(report(relay), "utf8")));
  };
  return { reports };
}

async function measureHop() {
  await startRelays("hop", 2);
  const pairs = [];
  for (let round = 0; round < 5; round += 1) {
    const reports = await bench([0, 1], 20, round + 1).reports();
    const [near, far] = reports.map((report) => report.tracks[0].latency.overall.p50_ms);
    console.error(`hop, round ${round + 1}: ${near} and ${far} ms`);
    pairs.push([near, far]);
  }
  await stopRelays();
  const median = (of) => quantile(pairs.map(of), 0.5);
  const added = pairs.map(([near, far]) => far - near);
  write("hop", "Latency of one more relay", [
    "| subscribers at | p50 ms |", "|---|--:|", `| the publisher's relay | ${number(median(([near]) => near), 3)} |`,
    `| another relay | ${number(median(([, far]) => far), 3)} |`,
    `| difference, median of the rounds | ${number(quantile(added, 0.5), 3)} |`,
    `| difference, smallest and largest | ${number(Math.min(...added), 3)} to ${number(Math.max(...added), 3)} |`, "",
    `One publisher, and 20 subscribers at each relay at the same time; audio profile, ${seconds} s, five rounds; all on one clock.`,
  ]);
}

async function measureCost() {
  const rows = [];
  for (const [others, viewers] of [[2, most], [4, most], [8, most], [4, Math.ceil(most / 10)]]) {
    await startRelays(`cost-${others}-${viewers}`, others + 1);
    const { reports } = bench(Array.from({ length: others }, (_, place) => place + 1), viewers, 7);
    const sample = async () => {
      const objects = await metric(0, "weir_relay_datagrams_received_total");
      return { objects, cpu: cpuMicroseconds(relays[0].pid) };
    };
    await until("objects come", async () => (await sample()).objects > 50);
    const before = await sample();
    await pause((seconds - 2) * 1000 - 1000);
    const after = await sample();
    const lost = (await reports()).reduce((sum, report) => sum + report.tracks[0].delivery.dropped, 0);
    await stopRelays();
    const cost = (after.cpu - before.cpu) / (after.objects - before.objects);
    const row = [others, viewers, others * viewers, number(cost, 1), number(cost / others, 1), lost];
    console.error(`cost: ${row.join(", ")}`);
    rows.push(`| ${row.join(" | ")} |`);
  }
  write("cost", "Cost at the publisher's relay", [
    "| other relays | viewers at each | viewers | CPU µs per object | the same per relay | objects lost |",
    "|--:|--:|--:|--:|--:|--:|", ...rows, "",
    "CPU time of the publisher's relay over the objects that its publisher sent, while all viewers receive; audio profile.",
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
  const gaps = viewers.map(({ report }) => gap(framesOf(report), since));
  add("longest time without a new picture, over all of it", `${number(Math.max(...gaps))} s`);
  await kill(publisher);
  await stopRelays();
  write("nats", "Failures of NATS", ["| event | result |", "|---|---|", ...rows, "", `${VIEWERS} viewers play a stream over one link all the time.`]);
}

async function demo() {
  await startRelays("demo");
  const publisher = publish();
  await until("the stream is published", async () => (await metric(2, "weir_relay_fleet_namespaces")) === 1);
  const { address } = await servePage(2);
  console.log(`Open ${address} in a browser. Its relay is killed in 20 seconds.`);
  const viewer = play(0);
  await pause(20_000);
  const since = Date.now();
  await kill(relays[2]);
  console.log("The viewers' relay was killed.");
  await pause(10_000);
  await kill(viewer.child, "SIGINT");
  console.log(`A player without a screen had no new picture for ${number(gap(framesOf(viewer.report), since))} s. The page plays until Ctrl-C.`);
  await Promise.race([publisher.ended, new Promise((resolve) => process.once("SIGINT", resolve))]);
}

/** Writes the table of a simulated fleet from the rows that its test has printed. */
function writeSimulated() {
  const rows = readFileSync(0, "utf8").split("\n").filter((line) => line.startsWith("| "));
  if (rows.length === 0) throw new Error("the test has printed no table");
  const how = "Virtual time, from one seed: `make fleet-sim`.";
  const lines = [
    "| | |", "|---|---|", ...rows, "",
    "Five tracks, each published at a relay of its own. A relay takes a track once, over one link, before and after all failures. Times",
    "count from the kill, and include 2.5 s after which the viewers and the publisher of a dead relay are at another one.",
  ];
  write("sim", "A thousand relays", lines, ["fleet-sim", how]);
}

async function measure() {
  execFileSync("openssl", [
    "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "10", "-subj", "/CN=localhost",
    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", files.key, "-out", files.certificate,
  ], { stdio: "ignore" });
  const measures = {
    ...Object.fromEntries(["kills", "stops"].map((name) => [name, () => measureFailures(name)])),
    ...Object.fromEntries(["drops", "cuts"].map((name) => [name, () => measureApart(name)])),
    restarts: measureRestarts, hop: measureHop, cost: measureCost, nats: measureNats,
  };
  const wanted = isDemo ? ["demo"] : Object.keys(measures).filter((name) => only.includes(name));
  if (wanted.some((name) => !["hop", "cost"].includes(name))) {
    execFileSync("ffmpeg", [
      "-hide_banner", "-loglevel", "error", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=24", "-t", "240", "-pix_fmt", "yuv420p",
      "-c:v", "libx264", "-preset", "ultrafast", "-b:v", "300k", "-g", "24", "-bf", "0", "-sc_threshold", "0", "-f", "mp4",
      "-movflags", "cmaf+frag_every_frame+empty_moov+default_base_moof", clip,
    ]);
  }
  if (!isApart) for (const one of [0, 1, 2]) startNats(one);
  if (isDemo) return demo();
  for (const name of wanted) await measures[name]();
}

try {
  if (flags.includes("--sim")) writeSimulated();
  else await measure();
} finally {
  await stage?.end();
  await Promise.all([...children].map((child) => kill(child)));
  if (isApart) for (const one of [0, 1, 2]) spawnSync("ip", ["netns", "del", space(one)]);
  rmSync(folder, { recursive: true, force: true });
}
