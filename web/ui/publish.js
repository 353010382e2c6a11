/**
 * The page that publishes a camera and a microphone. With `?fake` in its address it publishes a drawing instead.
 */

import { Publisher } from "../player/publisher.js";
import { parameters, target } from "./config.js";
import { bitRate, element } from "./format.js";

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

target().then((known) => {
  if (!namespace.value) namespace.value = known.namespace;
}).catch((error) => say("lost", String(error.message)));

element("watch-link", HTMLAnchorElement).href = `./${location.search}`;

element("form", HTMLFormElement).addEventListener("submit", (event) => {
  event.preventDefault();
  publish().catch((error) => {
    say("lost", words(error));
    finish();
  });
});
end.addEventListener("click", () => publisher?.stop());
size.addEventListener("change", () => publisher?.change(quality()));
setInterval(show, 500);
if (parameters().has("start")) publish().catch((error) => say("lost", words(error)));

async function publish() {
  begin.disabled = true;
  const { width, height } = quality();
  const stream = isFake ? drawing(width, height) : await navigator.mediaDevices.getUserMedia({
    video: { width, height, frameRate: 30 },
    audio: element("with-sound", HTMLInputElement).checked,
  });
  preview.srcObject = stream;
  const [video] = stream.getVideoTracks();
  const [audio] = stream.getAudioTracks();
  const known = await target();
  publisher = new Publisher(
    { ...known, namespace: namespace.value || known.namespace },
    quality(),
    {
      video: new MediaStreamTrackProcessor({ track: video }).readable.getReader(),
      ...(audio ? { audio: new MediaStreamTrackProcessor({ track: audio }).readable.getReader() } : {}),
    },
  );
  end.disabled = false;
  say("playing", "");
  const reason = await publisher.run();
  for (const track of stream.getTracks()) track.stop();
  say(reason ? "lost" : "stopped", reason);
  finish();
}

/** @returns {import("../player/publisher.js").Quality} */
function quality() {
  const [width, height, kilobits] = size.value.split("x").map(Number);
  return { width, height, bitrate: kilobits * 1000 };
}

function finish() {
  begin.disabled = false;
  end.disabled = true;
  preview.srcObject = null;
}

/**
 * A picture that changes all the time.
 *
 * @param {number} width
 * @param {number} height
 */
function drawing(width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d", { alpha: false });
  let round = 0;
  const draw = () => {
    if (!context) return;
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
  draw();
  const timer = setInterval(draw, 1000 / 30);
  const stream = canvas.captureStream(30);
  stream.getVideoTracks()[0].addEventListener("ended", () => clearInterval(timer));
  return stream;
}

/**
 * @param {"playing" | "lost" | "stopped"} name
 * @param {string} reason
 */
function say(name, reason) {
  state.textContent = { playing: "live", lost: "failed", stopped: "stopped" }[name];
  state.className = `badge ${name}`;
  notice.hidden = reason === "";
  notice.textContent = reason;
}

/** @param {unknown} error */
function words(error) {
  if (!(error instanceof Error)) return String(error);
  if (error.name === "NotAllowedError") return "The browser was not allowed to use the camera.";
  if (error.name === "NotFoundError") return "There is no camera.";
  if (error.name === "WebTransportError") return "The relay cannot be reached, or its certificate is not trusted.";
  return error.message;
}

let bytesBefore = 0;
let shownAt = performance.now();

function show() {
  if (!publisher) return;
  const { frames, keyframes, dropped, bytes, streamsReset, audioChunks } = publisher.counters;
  const now = performance.now();
  const rate = ((bytes - bytesBefore) * 8000) / (now - shownAt);
  bytesBefore = bytes;
  shownAt = now;
  /** @type {[string, string][]} */
  const tiles = [
    ["Frames", String(frames)],
    ["Keyframes", String(keyframes)],
    ["Video", bitRate(rate)],
    ["Not encoded", String(dropped)],
    ["Given up", String(streamsReset)],
    ["Sound", String(audioChunks)],
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
