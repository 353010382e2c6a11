/**
 * The catalog of a stream: which tracks there are and how to decode them (draft-ietf-moq-msf, versions 00 and 01, and what
 * went before it, draft-ietf-moq-catalogformat-01).
 */

import { readInit } from "./mp4.js";

/** The name of the track that carries it. */
export const CATALOG_TRACK = "catalog";
/** The name of the track that carries it with publishers of the format before. */
export const EARLIER_CATALOG_TRACK = ".catalog";
/** The name of the track with the init segment, as in the thesis. */
export const INIT_TRACK = "init";
/** Init segments that are fetched for one catalog. */
const INIT_TRACKS_MAX = 8;

/**
 * @typedef {object} TrackPlan a track to be played
 * @property {string} name
 * @property {"video" | "audio"} media
 * @property {"loc" | "cmaf"} packaging
 * @property {string} codec
 * @property {Uint8Array} [description]
 * @property {number} [timescale] of the timestamps, for LOC without one of its own
 * @property {number} [width]
 * @property {number} [height]
 * @property {number} [sampleRate]
 * @property {number} [channels]
 * @property {import("./mp4.js").Mp4Track[]} init of the init segment, for `cmaf`
 *
 * @typedef {object} Plan
 * @property {string | undefined} strategy by which a stream of ours is delivered
 * @property {TrackPlan[]} video the one with the keyframes first
 * @property {TrackPlan | undefined} audio
 */

/**
 * Reads a catalog.
 *
 * @param {Uint8Array} json
 * @param {Map<string, Uint8Array>} segments what the tracks hold that {@link initTracks} names
 * @returns {Plan} an error of plain words if there is nothing to play
 */
export function readCatalog(json, segments = new Map()) {
  const catalog = parse(json);
  /** @type {TrackPlan[]} */
  const plans = catalog.tracks.flatMap((/** @type {any} */ track) => planOf(track, catalog, segments));
  const depends = (/** @type {TrackPlan} */ plan) =>
    catalog.tracks.find((/** @type {any} */ track) => track.name === plan.name)?.depends?.length > 0 ? 1 : 0;
  const video = plans.filter((plan) => plan.media === "video");
  if (video.length === 0) throw new Error("the catalog of the stream has no video that this player knows");
  // Of alternatives of one quality each, the first is played; layers of one video depend on each other.
  const base = video.find((plan) => depends(plan) === 0) ?? video[0];
  const layers = video.filter((plan) => plan !== base && depends(plan) === 1);
  return {
    strategy: typeof catalog.weirStrategy === "string" ? catalog.weirStrategy : undefined,
    video: [base, ...layers],
    audio: plans.find((plan) => plan.media === "audio"),
  };
}

/**
 * The tracks with init segments that a catalog names, where they do not stand in it.
 *
 * @param {Uint8Array} json
 * @returns {string[]} the first ones, each once; an error of plain words if it is no catalog
 */
export function initTracks(json) {
  const names = parse(json).tracks.flatMap(({ initTrack }) => (typeof initTrack === "string" ? [initTrack] : []));
  return [...new Set(names)].slice(0, INIT_TRACKS_MAX);
}

/**
 * @param {Uint8Array} json
 * @returns {{ tracks: any[], [field: string]: any }} tracks with the fields that the earlier format keeps for all, or one level deeper
 */
function parse(json) {
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
 * @param {any} track
 * @param {any} catalog
 * @param {Map<string, Uint8Array>} segments
 * @returns {TrackPlan[]} none if it is of no use here
 */
function planOf(track, catalog, segments) {
  const packaging = track.packaging;
  if (typeof track.name !== "string" || (packaging !== "loc" && packaging !== "cmaf")) return [];
  const codec = typeof track.codec === "string" ? track.codec : "";
  const isAudio = track.role === "audio" || /^(mp4a|opus|Opus)/.test(codec);
  const isVideo = track.role === "video" || /^(avc|hvc|hev|vp0|av01)/.test(codec);
  if (!isAudio && !isVideo) return [];
  const data = initData(track, catalog) ?? segments.get(track.initTrack);
  /** @type {TrackPlan} */
  const plan = {
    name: track.name,
    media: isAudio ? "audio" : "video",
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
    return [plan];
  }
  plan.init = data ? readInit(data) : [];
  const own = plan.init.find((known) => known.media === plan.media);
  return [{ ...plan, ...(own ? fromInit(own) : {}) }];
}

/**
 * All of a plan as text, by which two of them can be compared.
 *
 * @param {Plan} plan
 * @returns {string}
 */
export function planText(plan) {
  return JSON.stringify(plan, (_, value) => (value instanceof Uint8Array ? [...value] : value));
}

/**
 * The plan of a stream as the thesis has it: an init segment, and tracks that the strategy names.
 *
 * @param {Uint8Array} segment
 * @param {string[]} names of the tracks with video
 * @param {string | undefined} strategy
 * @returns {Plan}
 */
export function planOfInit(segment, names, strategy) {
  const init = readInit(segment);
  const video = init.find((track) => track.media === "video");
  if (!video) throw new Error("the init segment of the stream describes no video that this player knows");
  const audio = init.find((track) => track.media === "audio");
  return {
    strategy,
    video: names.map((name) => ({ name, packaging: "cmaf", init, media: "video", ...fromInit(video) })),
    audio: audio && { name: `audio-${audio.id}`, packaging: "cmaf", init, media: "audio", ...fromInit(audio) },
  };
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
  const listed = catalog.initDataList?.find?.((/** @type {any} */ one) => one.id === track.initRef && one.type === "inline");
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
