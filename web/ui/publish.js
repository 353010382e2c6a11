/**
 * The page that publishes a camera and a microphone. With `?fake` in its URL it publishes a drawing instead.
 */

import { Publisher } from "../player/publisher.js";
import { publishThroughAny } from "../player/roaming.js";
import { parameters, target } from "./config.js";
import { bitRate, element } from "./format.js";
import { whyNoPublishing, whyNoSound, whyNotPublished } from "./words.js";

const state = element("state", HTMLElement);
const notice = element("notice", HTMLElement);
const preview = element("preview", HTMLVideoElement);
const namespace = element("namespace", HTMLInputElement);
const size = element("size", HTMLSelectElement);
const begin = element("begin", HTMLButtonElement);
const end = element("end", HTMLButtonElement);
const isFake = parameters().has("fake");

/** @type {Publisher | undefined} */
let publisher;
/** Ends the stream, whichever relay has it. */
let leaving = new AbortController();

element("watch-link", HTMLAnchorElement).href = `./${location.search}`;
element("form", HTMLFormElement).addEventListener("submit", (event) => {
  event.preventDefault();
  publish();
});
end.addEventListener("click", () => leaving.abort());
size.addEventListener("change", () => publisher?.change(quality()));
setInterval(show, 500);

const missing = whyNoPublishing();
if (missing) {
  say("lost", missing);
  begin.disabled = true;
} else {
  target().then((known) => {
    if (!namespace.value) namespace.value = known.namespace;
  }).catch((error) => say("lost", whyNotPublished(error, undefined)));
}

/** Publishes until the stream ends for any reason, then releases camera and microphone. */
async function publish() {
  begin.disabled = true;
  say("connecting", "");
  /** @type {MediaStream | undefined} */
  let stream;
  /** @type {import("../player/reception.js").Target | undefined} */
  let wanted;
  try {
    stream = await picture();
    preview.srcObject = stream;
    const [video] = stream.getVideoTracks();
    const [audio] = stream.getAudioTracks();
    const known = await target();
    wanted = { ...known, namespace: namespace.value || known.namespace };
    const make = (/** @type {import("../player/reception.js").Target} */ next) => {
      wanted = next;
      publisher = new Publisher(next, quality(), {
        video: new MediaStreamTrackProcessor({ track: video }).readable.getReader(),
        ...(audio ? { audio: new MediaStreamTrackProcessor({ track: audio }).readable.getReader() } : {}),
      });
      return publisher;
    };
    leaving = new AbortController();
    end.disabled = false;
    const reason = await publishThroughAny(wanted, {
      make,
      signal: leaving.signal,
      onAccepted: () => say("playing", ""),
      onLost: () => say("connecting", ""),
    });
    say(reason ? "lost" : "stopped", reason);
  } catch (error) {
    say("lost", whyNotPublished(error, wanted));
  } finally {
    for (const track of stream?.getTracks() ?? []) track.stop();
    preview.srcObject = null;
    begin.disabled = false;
    end.disabled = true;
  }
}

/** @returns {Promise<MediaStream>} the picture and the audio to publish */
async function picture() {
  const { width, height } = quality();
  if (isFake) return drawing(width, height);
  const hasSound = element("with-sound", HTMLInputElement).checked;
  const reason = hasSound ? whyNoSound() : "";
  if (reason) throw new Error(reason);
  return navigator.mediaDevices.getUserMedia({ video: { width, height, frameRate: 30 }, audio: hasSound });
}

/** @returns {import("../player/publisher.js").Quality} */
function quality() {
  const [width, height, kilobits] = size.value.split("x").map(Number);
  return { width, height, bitrate: kilobits * 1000 };
}

/**
 * Draws a picture that always changes, until its track is stopped.
 *
 * @param {number} width
 * @param {number} height
 */
function drawing(width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d", { alpha: false });
  const stream = canvas.captureStream(30);
  const [track] = stream.getVideoTracks();
  let round = 0;
  const draw = () => {
    // A track that the page itself has stopped raises no event.
    if (track.readyState === "ended") clearInterval(timer);
    if (!context || track.readyState === "ended") return;
    const at = performance.now() / 1000;
    const sky = context.createLinearGradient(0, 0, width, height);
    sky.addColorStop(0, `hsl(${(at * 20) % 360} 70% 45%)`);
    sky.addColorStop(1, `hsl(${(at * 20 + 120) % 360} 70% 30%)`);
    context.fillStyle = sky;
    context.fillRect(0, 0, width, height);
    context.fillStyle = "white";
    context.beginPath();
    context.arc(width / 2 + Math.cos(at * 2) * width * 0.3, height / 2 + Math.sin(at * 3) * height * 0.3, height * 0.08, 0, 7);
    context.fill();
    context.font = `${Math.round(height / 8)}px monospace`;
    context.fillText(String(round++), width * 0.05, height * 0.2);
  };
  const timer = setInterval(draw, 1000 / 30);
  draw();
  return stream;
}

/**
 * @param {"connecting" | "playing" | "lost" | "stopped"} name
 * @param {string} reason
 */
function say(name, reason) {
  state.textContent = { connecting: "connecting", playing: "live", lost: "failed", stopped: "stopped" }[name];
  state.className = `badge ${name}`;
  notice.hidden = reason === "";
  notice.textContent = reason;
}

/** The last figures shown, and when.
 *
 * @type {{ publisher: Publisher | undefined, bytes: number, at: number }} */
let before = { publisher, bytes: 0, at: performance.now() };

function show() {
  if (!publisher) return;
  const { frames, keyframes, dropped, bytes, streamsReset, audioChunks } = publisher.counters;
  const at = performance.now();
  const more = bytes - (before.publisher === publisher ? before.bytes : 0);
  const rate = (more * 8000) / (at - before.at);
  before = { publisher, bytes, at };
  /** @type {[string, string][]} */
  const tiles = [
    ["Frames", String(frames)],
    ["Keyframes", String(keyframes)],
    ["Video sent", bitRate(rate)],
    ["Skipped", String(dropped)],
    ["Streams reset", String(streamsReset)],
    ["Audio chunks", String(audioChunks)],
  ];
  element("tiles", HTMLElement).replaceChildren(...tiles.map(([name, value]) => {
    const tile = document.createElement("div");
    const term = document.createElement("dt");
    const text = document.createElement("dd");
    term.textContent = name;
    text.textContent = value;
    tile.append(term, text);
    return tile;
  }));
}

Object.assign(globalThis, { weir: { publisher: () => publisher } });
