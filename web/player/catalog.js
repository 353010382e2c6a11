/**
 * The catalog of a stream: its tracks and how to decode them (draft-ietf-moq-msf 00 and 01, and the earlier
 * draft-ietf-moq-catalogformat-01).
 */

import { readInit } from "./mp4.js";

/** The name of the catalog's track. */
export const CATALOG_TRACK = "catalog";
/** The name of the catalog's track in the earlier format. */
export const EARLIER_CATALOG_TRACK = ".catalog";
/** The name of the track with the init segment, as in the thesis. */
export const INIT_TRACK = "init";
/** Init segments that are requested for one catalog. */
const INIT_TRACKS_MAX = 8;
/** Video tracks that are played together: one that can be decoded alone, and its layers. */
export const LAYERS_MAX = 8;
/** The most bytes of a catalog, and of an init segment. */
export const HELD_BYTES_MAX = 1 << 20;

/**
 * @typedef {object} TrackPlan a track to play
 * @property {string} name
 * @property {"video" | "audio"} media
 * @property {"loc" | "cmaf"} packaging
 * @property {string} codec
 * @property {Uint8Array} [description]
 * @property {number} [timescale] for LOC timestamps without a timescale of their own
 * @property {number} [width]
 * @property {number} [height]
 * @property {number} [sampleRate]
 * @property {number} [channels]
 * @property {import("./mp4.js").Mp4Track[]} init the tracks of the init segment, for `cmaf`
 *
 * @typedef {object} Plan
 * @property {string | undefined} strategy the delivery strategy, if the catalog names one
 * @property {TrackPlan[]} video the one with the keyframes first
 * @property {TrackPlan | undefined} audio
 */

/**
 * Parses a catalog.
 *
 * @param {Uint8Array} json
 * @param {Map<string, Uint8Array>} segments the objects of the tracks that {@link initTracks} names
 * @returns {Plan} throws an error with a plain text if there is nothing to play
 */
export function readCatalog(json, segments = new Map()) {
  const catalog = parse(json);
  const video = catalog.tracks.filter((track) => mediaOf(track) === "video");
  if (video.length === 0) throw new Error("the catalog of the stream lists no video that this player can decode");
  const isLayer = (/** @type {any} */ track) => Array.isArray(track.depends) && track.depends.length > 0;
  // Of alternatives of equal quality, the first is played. Layers of one video depend on each other.
  const base = video.find((track) => !isLayer(track)) ?? video[0];
  const layers = video.filter((track) => isLayer(track) && track.name !== base.name);
  const audio = catalog.tracks.find((track) => mediaOf(track) === "audio");
  const plan = (/** @type {any} */ track) => planOf(track, catalog, segments);
  return {
    strategy: typeof catalog.weirStrategy === "string" ? catalog.weirStrategy : undefined,
    video: [base, ...layers].slice(0, LAYERS_MAX).map(plan),
    audio: audio && orNone(() => plan(audio)),
  };
}

/**
 * Returns no track for an audio track that cannot be played, since the video still can.
 *
 * @param {() => TrackPlan} plan
 * @returns {TrackPlan | undefined}
 */
function orNone(plan) {
  try {
    return plan();
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

/**
 * Returns the tracks with init segments that a catalog refers to and does not contain.
 *
 * @param {Uint8Array} json
 * @returns {string[]} the first ones, each once; throws an error with a plain text if it is not a catalog
 */
export function initTracks(json) {
  const names = parse(json).tracks.flatMap(({ initTrack }) => (typeof initTrack === "string" ? [initTrack] : []));
  return [...new Set(names)].slice(0, INIT_TRACKS_MAX);
}

/**
 * @param {Uint8Array} json
 * @returns {{ tracks: any[], [field: string]: any }} tracks, each with the fields that the earlier format shares or
 *   nests
 */
function parse(json) {
  if (json.length > HELD_BYTES_MAX) throw new Error(`the catalog of the stream has ${json.length} bytes; at most ${HELD_BYTES_MAX} are accepted`);
  /** @type {any} */
  let catalog;
  try {
    catalog = JSON.parse(new TextDecoder().decode(json));
  } catch {
    throw new Error("the catalog of the stream cannot be read");
  }
  if (!Array.isArray(catalog?.tracks)) throw new Error("the catalog of the stream lists no tracks");
  const tracks = catalog.tracks
    .filter((/** @type {unknown} */ track) => typeof track === "object" && track !== null)
    .map((/** @type {any} */ track) => ({ ...catalog.commonTrackFields, ...track.selectionParams, ...track }));
  return { ...catalog, tracks };
}

/**
 * Returns the kind of media of a track.
 *
 * @param {any} track
 * @returns {"video" | "audio" | undefined} undefined if it cannot be played
 */
function mediaOf({ name, packaging, role, codec }) {
  if (typeof name !== "string" || (packaging !== "loc" && packaging !== "cmaf")) return undefined;
  const known = typeof codec === "string" ? codec : "";
  if (role === "audio" || /^(mp4a|opus|Opus)/.test(known)) return "audio";
  return role === "video" || /^(avc|hvc|hev|vp0|av01)/.test(known) ? "video" : undefined;
}

/**
 * @param {any} track one that {@link mediaOf} recognizes
 * @param {any} catalog
 * @param {Map<string, Uint8Array>} segments
 * @returns {TrackPlan}
 */
function planOf(track, catalog, segments) {
  const { packaging } = track;
  const codec = typeof track.codec === "string" ? track.codec : "";
  const data = initData(track, catalog) ?? segments.get(track.initTrack);
  /** @type {TrackPlan} */
  const plan = {
    name: track.name,
    media: mediaOf(track) ?? "video",
    packaging,
    codec: codec === "Opus" ? "opus" : codec,
    timescale: number(track.timescale),
    width: number(track.width),
    height: number(track.height),
    sampleRate: number(track.samplerate),
    channels: number(Number(track.channelConfig)),
    init: [],
  };
  if (packaging === "loc") {
    if (data && data.length > 0) plan.description = data;
    return plan;
  }
  plan.init = data ? initOf(data) : [];
  const own = plan.init.find((known) => known.media === plan.media);
  return { ...plan, ...(own ? fromInit(own) : {}) };
}

/**
 * Returns a plan as text, to compare plans.
 *
 * @param {Plan} plan
 * @returns {string}
 */
export function planText(plan) {
  return JSON.stringify(plan, (_, value) => (value instanceof Uint8Array ? [...value] : value));
}

/**
 * Returns the plan of a stream as in the thesis: an init segment, and tracks that the strategy names.
 *
 * @param {Uint8Array} segment
 * @param {string[]} names of the video tracks
 * @param {string | undefined} strategy
 * @returns {Plan}
 */
export function planOfInit(segment, names, strategy) {
  const init = initOf(segment);
  const video = init.find((track) => track.media === "video");
  if (!video) throw new Error("the init segment of the stream describes no video that this player can decode");
  const audio = init.find((track) => track.media === "audio");
  return {
    strategy,
    video: names.map((name) => ({ name, packaging: "cmaf", init, media: "video", ...fromInit(video) })),
    audio: audio && { name: `audio-${audio.id}`, packaging: "cmaf", init, media: "audio", ...fromInit(audio) },
  };
}

/**
 * Reads the tracks of an init segment of limited size.
 *
 * @param {Uint8Array} segment
 */
function initOf(segment) {
  if (segment.length > HELD_BYTES_MAX) throw new RangeError(`the init segment has ${segment.length} bytes; at most ${HELD_BYTES_MAX} are accepted`);
  return readInit(segment);
}

/** @param {import("./mp4.js").Mp4Track} track */
function fromInit(track) {
  const { codec, description, width, height, sampleRate, channels } = track;
  return { codec, ...(description ? { description } : {}), width, height, sampleRate, channels };
}

/**
 * @param {any} track
 * @param {any} catalog
 * @returns {Uint8Array | undefined}
 */
function initData(track, catalog) {
  const list = Array.isArray(catalog.initDataList) ? catalog.initDataList : [];
  const isReferred = (/** @type {any} */ one) => one?.type === "inline" && one.id !== undefined && one.id === track.initRef;
  const listed = list.find(isReferred);
  const text = listed?.data ?? track.initData;
  if (typeof text !== "string") return undefined;
  try {
    return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  } catch {
    return undefined;
  }
}

/** @param {unknown} value */
function number(value) {
  return typeof value === "number" && Number.isFinite(value) && value > 0 ? value : undefined;
}
