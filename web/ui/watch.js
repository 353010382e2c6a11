/**
 * The page that plays a stream.
 */

import { Viewer } from "../player/viewer.js";
import { parameters, target } from "./config.js";
import { droppedByKind } from "./dropped.js";
import { bitRate, element, percent, seconds } from "./format.js";
import { Plot } from "./plot.js";
import { whyNoTransport } from "./words.js";

/** How often the figures are updated, in milliseconds. */
const REFRESH_MS = 250;
/** Every so many updates also add a point to the plots. */
const PLOT_EVERY = 2;

const canvas = element("canvas", HTMLCanvasElement);
const stateBadge = element("state", HTMLElement);
const notice = element("notice", HTMLElement);
const overlay = element("overlay", HTMLElement);
const sound = element("sound", HTMLButtonElement);
const remark = element("remark", HTMLElement);
const volume = element("volume", HTMLInputElement);
const join = element("join", HTMLSelectElement);
const buffer = element("buffer", HTMLSelectElement);
const wanted = parameters();

join.value = wanted.get("join") === "current" ? "current" : "next";
const wantedBuffer = wanted.get("buffer") ?? "adaptive";
if (![...buffer.options].some((option) => option.value === wantedBuffer) && /^[0-9]{1,5}$/.test(wantedBuffer)) {
  buffer.add(new Option(`${wantedBuffer} ms`, wantedBuffer));
}
buffer.value = wantedBuffer;
if (buffer.selectedIndex < 0) buffer.value = "adaptive";

/** The text of each state.
 *
 * @type {Record<import("../player/receiver.js").State, [name: string, notice: string]>} */
const STATES = {
  connecting: ["connecting", "Connecting…"],
  waiting: ["waiting", "Nobody publishes this stream yet. Playback starts when a publisher arrives."],
  subscribed: ["connected", "The stream is there. Playback starts with its next group of pictures: how often does the encoder make a keyframe?"],
  playing: ["live", ""],
  ended: ["ended", "The publisher has stopped. Playback resumes when the stream is published again."],
  lost: ["lost", "No connection to the relay. Retrying…"],
  stopped: ["stopped", ""],
};

const KINDS = /** @type {const} */ (["I", "P", "B"]);

/** @type {string | undefined} */
let problem;
/** Whether the viewer wants audio. */
let wantsSound = false;
/** @type {Viewer} */
let viewer = makeViewer();

const plots = {
  latency: new Plot(
    element("plot-latency", HTMLCanvasElement),
    [{ label: "latency", color: "--accent" }, { label: "age", color: "--age" }],
    seconds,
    0.2,
  ),
  rate: new Plot(
    element("plot-rate", HTMLCanvasElement),
    [
      { label: "I", color: "--kind-i", isFilled: true },
      { label: "P", color: "--kind-p", isFilled: true },
      { label: "B", color: "--kind-b", isFilled: true },
    ],
    bitRate,
    100_000,
  ),
  buffer: new Plot(
    element("plot-buffer", HTMLCanvasElement),
    [{ label: "buffer", color: "--accent" }, { label: "target", color: "--soft" }],
    seconds,
    0.2,
  ),
};

const missing = whyNoTransport();
if (missing) {
  say("lost", missing);
} else {
  viewer.start();
  target().then(({ namespace, relay }) => {
    element("name", HTMLElement).textContent = namespace;
    document.title = `${namespace} – weir`;
    stateBadge.title = relay;
    const link = element("publish-link", HTMLAnchorElement);
    link.href = `publish.html${location.search}`;
  }).catch(() => {});
}

/** @returns {Viewer} */
function makeViewer() {
  const chosen = buffer.value;
  return new Viewer(
    canvas,
    {
      join: join.value === "current" ? "current" : "next",
      buffer: chosen === "adaptive" || chosen === "strategy" ? chosen : Number(chosen),
    },
    {
      target,
      onState: (state, reason) => {
        if (state === "playing") problem = undefined;
        // What this browser cannot play does not begin to play.
        if (state === "subscribed" && problem) return;
        say(state, state === "lost" ? reason : "");
      },
      onProblem: (reason) => {
        problem = reason;
        say("lost", reason);
      },
    },
  );
}

/**
 * @param {import("../player/receiver.js").State} state
 * @param {string} reason
 */
function say(state, reason) {
  const [name, text] = STATES[state];
  stateBadge.textContent = name;
  stateBadge.className = `badge ${state}`;
  const lines = problem ? [problem] : [text, reason].filter((line) => line !== "");
  notice.hidden = lines.length === 0;
  notice.replaceChildren(...lines.map((line, place) => {
    const part = document.createElement(place === 0 ? "span" : "small");
    part.textContent = line;
    return part;
  }));
}

let round = 0;
/** @type {Record<"I" | "P" | "B", number> | undefined} */
let bytesBefore;
let bytesAt = 0;

function refresh() {
  const now = performance.now() / 1000;
  const found = viewer.figures();
  const { lately, dropped, byKind, connection } = found;
  const droppedOf = droppedByKind(byKind, viewer.records.frames);
  const lost = dropped.late + dropped.overflow + dropped.undecodable + dropped.behind + found.video.lateForDecoder;
  showTiles({
    Latency: [seconds(found.latencyNow), found.isTold ? "now" : "not reported"],
    "Median, 1 min": [seconds(lately.latency_median), `p95 ${seconds(lately.latency_p95)}`],
    Age: [seconds(found.ageNow), `mean ${seconds(lately.age_mean)}`],
    Buffer: [seconds(found.buffered), `target ${seconds(found.target)}`],
    Shown: [percent(lately.shown), `${lost} dropped`],
    Freezes: [String(lately.freezes), `total ${seconds(lately.freeze_total)}`],
  });
  overlay.textContent = [
    `latency ${seconds(found.latencyNow)}  (median ${seconds(lately.latency_median)})`,
    `age     ${seconds(found.ageNow)}`,
    `buffer  ${seconds(found.buffered)}  target ${seconds(found.target)}  ×${found.rate.toFixed(2)}`,
    `shown   ${percent(lately.shown)}  freezes ${lately.freezes}`,
    `frames  ${KINDS.map((kind) => `${kind} ${byKind[kind].shown}`).join("  ")}`,
    `dropped ${KINDS.map((kind) => `${kind} ${droppedOf[kind]}`).join("  ")}`,
    `reconnects ${connection.reconnects}  GOAWAY ${connection.goAways}`,
    `${bitRate(lately.bit_rates.reduce((sum, rate) => sum + rate, 0))}  ${found.strategy}${found.isBaseOnly && byKind.B.received > 0 ? "  base layer only" : ""}`,
  ].join("\n");
  showDetails(found, droppedOf);
  round += 1;
  if (round % PLOT_EVERY !== 0) return;
  plots.latency.add(now, [found.latencyNow, found.ageNow]);
  plots.buffer.add(now, [found.buffered, found.target]);
  const { I, P, B } = byKind;
  if (bytesBefore) {
    const span = now - bytesAt;
    plots.rate.add(now, [
      ((I.bytes - bytesBefore.I) * 8) / span,
      ((P.bytes - bytesBefore.P) * 8) / span,
      ((B.bytes - bytesBefore.B) * 8) / span,
    ]);
  }
  bytesBefore = { I: I.bytes, P: P.bytes, B: B.bytes };
  bytesAt = now;
}

/** @param {Record<string, [value: string, more: string]>} tiles */
function showTiles(tiles) {
  const list = element("tiles", HTMLElement);
  Object.entries(tiles).forEach(([name, [value, more]], place) => {
    let tile = list.children[place];
    if (!tile) {
      tile = document.createElement("div");
      tile.append(document.createElement("dt"), document.createElement("dd"));
      list.append(tile);
    }
    const [term, text] = [tile.children[0], tile.children[1]];
    const small = document.createElement("small");
    small.textContent = ` ${more}`;
    term.textContent = name;
    text.replaceChildren(value, document.createElement("br"), small);
  });
}

/**
 * @param {ReturnType<Viewer["figures"]>} found
 * @param {import("./dropped.js").ByKind} droppedOf
 */
function showDetails(found, droppedOf) {
  const { byKind, connection, video, dropped, plan } = found;
  /** @type {[string, string][]} */
  const rows = KINDS.map((kind) => {
    const { received, shown } = byKind[kind];
    return [`${kind}-frames: shown, dropped / received`, `${shown}, ${droppedOf[kind]} / ${received}`];
  });
  rows.push(
    ["Dropped: too late to show, too late to decode", `${dropped.late}, ${video.lateForDecoder}`],
    ["Dropped: a frame they refer to is missing", String(dropped.undecodable)],
    ["Dropped: to return to the live edge", String(dropped.behind)],
    ["Decoder: frames decoded, errors, overloads", `${video.decoded}, ${video.errors}, ${video.overloads}`],
    ["Groups decoded without waiting for B-frames", String(video.baseOnly)],
    ["Audio: chunks decoded, errors", found.audio.problem ?? `${found.audio.decoded}, ${found.audio.errors}`],
    ["Video behind audio", seconds(found.inSync)],
    ["Video", plan ? `${plan.video[0].codec} ${plan.video[0].packaging} ${canvas.width}×${canvas.height}` : "–"],
    ["Relay", found.implementation ?? "–"],
    ["Connections: opened, lost, spares tried", `${connection.connects}, ${connection.reconnects}, ${connection.watchdogs}`],
    ["GOAWAY received", String(connection.goAways)],
    ["Streams: received, reset, stopped by this page", `${connection.streams ?? 0}, ${connection.streamsReset ?? 0}, ${connection.streamsStopped ?? 0}`],
    ["Duplicate frames", String(found.duplicates)],
  );
  const table = element("details", HTMLTableElement);
  table.replaceChildren(...rows.map(([name, value]) => {
    const row = document.createElement("tr");
    const head = document.createElement("th");
    head.scope = "row";
    head.textContent = name;
    const cell = document.createElement("td");
    cell.textContent = value;
    row.append(head, cell);
    return row;
  }));
}

function toggleSound() {
  wantsSound = !wantsSound;
  makeSound();
}

/** Enables or disables the audio of the current viewer, as wanted. The button shows the result. */
async function makeSound() {
  const [own, isWanted] = [viewer, wantsSound];
  // At once, in case audio is disabled while it is being set up.
  own.audio.setVolume(isWanted ? Number(volume.value) : 0);
  const reason = isWanted ? await own.enableSound().then(() => "", (error) => `No sound: ${error.message}`) : "";
  // In the meantime the viewer or the wish may have changed; that change updates the button.
  if (own !== viewer || isWanted !== wantsSound) return;
  wantsSound = isWanted && reason === "";
  sound.setAttribute("aria-pressed", String(wantsSound));
  sound.textContent = wantsSound ? "Sound on" : "Sound off";
  remark.textContent = reason;
  remark.hidden = reason === "";
}

function toggleOverlay() {
  overlay.hidden = !overlay.hidden;
  element("toggle", HTMLButtonElement).setAttribute("aria-pressed", String(!overlay.hidden));
}

function toggleFull() {
  const screen = element("screen", HTMLElement);
  // The keyboard must continue to work there.
  screen.focus({ preventScroll: true });
  if (document.fullscreenElement) document.exitFullscreen();
  else screen.requestFullscreen();
}

function save() {
  const blob = new Blob([JSON.stringify(viewer.export())], { type: "application/json" });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `weir-watch-${new Date().toISOString().replace(/[:.]/g, "-")}.json`;
  link.click();
  URL.revokeObjectURL(link.href);
}

sound.addEventListener("click", toggleSound);
volume.addEventListener("input", () => {
  if (wantsSound) viewer.audio.setVolume(Number(volume.value));
});
element("toggle", HTMLButtonElement).addEventListener("click", toggleOverlay);
element("full", HTMLButtonElement).addEventListener("click", toggleFull);
element("export", HTMLButtonElement).addEventListener("click", save);
buffer.addEventListener("change", () => {
  const chosen = buffer.value;
  viewer.setBuffer(chosen === "adaptive" || chosen === "strategy" ? chosen : Number(chosen));
});
join.addEventListener("change", () => {
  if (missing) return;
  viewer.stop();
  viewer = makeViewer();
  // Its counters start from zero.
  bytesBefore = undefined;
  viewer.start();
  makeSound();
});
// A single letter works only if the focus is in the player: elsewhere it may belong to another program, such as speech
// input (WCAG 2.2, 2.1.4).
element("player", HTMLElement).addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target instanceof HTMLSelectElement) return;
  const action = { m: toggleSound, o: toggleOverlay, f: toggleFull, e: save }[event.key.toLowerCase()];
  if (action) action();
});
document.addEventListener("visibilitychange", () => viewer.setHidden(document.hidden));
window.addEventListener("online", () => viewer.receiver.hurry());
window.addEventListener("resize", () => Object.values(plots).forEach((plot) => plot.draw()));
setInterval(refresh, REFRESH_MS);

/**
 * For the testbed: after `time` seconds the run is posted to `report`, an address of this machine.
 */
async function report() {
  const address = wanted.get("report");
  const time = Number(wanted.get("time"));
  if (!address || !(time > 0) || !["localhost", "127.0.0.1"].includes(new URL(address).hostname)) return;
  await new Promise((resolve) => setTimeout(resolve, time * 1000));
  await fetch(address, { method: "POST", mode: "no-cors", body: JSON.stringify(viewer.export()) });
}

report().catch((error) => console.error("the report cannot be sent", error));

// For tests, and for developer tools.
Object.assign(globalThis, { weir: { figures: () => viewer.figures(), export: () => viewer.export() } });
