/**
 * Turns objects into frames: fragments, as in the thesis and CMSF, and LOC (draft-ietf-moq-loc up to 04).
 */

import { findBytes, findInt } from "../moqt/property.js";
import { frameKind, lengthBytesOf } from "./h264.js";
import { readFragment } from "./mp4.js";
import { FRAME_PROPERTY, readTag } from "./tag.js";

/** The property of the presentation time, in the order in which versions of LOC are tried. */
const LOC_TIMESTAMPS = [0x10n, 0x0an, 0x06n];
const LOC_TIMESCALE = 0x08n;
const LOC_VIDEO_CONFIG = 0x0dn;
/** The duration of a first frame, in microseconds. */
const USUAL_DURATION_US = 33_333;
/** The longest duration, in microseconds. */
const DURATION_US_MAX = 200_000;
/** The largest distance between decode and presentation time, in microseconds. */
const REORDER_US_MAX = 500_000;
/** The number of recent presentation times whose distances give a frame's duration. */
const TIMES_MAX = 8;
/** Groups that are kept. Beyond this, the one that was inserted first is removed. */
export const GROUPS_MAX = 8;
/** The limit of times, so that sums of a few stay exact. */
const TIME_US_MAX = 2 ** 52;

/**
 * @typedef {object} MediaFrame a frame or an audio chunk, as a decoder takes it
 * @property {import("./tag.js").FrameTag} tag
 * @property {boolean} isTagged whether the object carried a frame tag, with its availability
 * @property {Uint8Array} data
 * @property {Uint8Array} [description] a new decoder configuration
 * @property {number} bytes of the object's payload
 */

/**
 * Derives decode times of frames, of which LOC gives only presentation times. The crate `live` does the same, and both
 * pass `vectors/live/loc-times.json`.
 *
 * Within a group, frames arrive in decoding order. A frame with a later presentation time than all before it may be
 * followed by frames that precede it on the screen. So its decode time is the latest presentation time before it, and
 * the decode time of those frames is their own presentation time.
 */
export class LocClock {
  constructor() {
    /** Of each of the last groups: its latest presentation time, and the decode time of its last frame.
     * @type {Map<number, { highestUs: number, decodeUs: number }>} */
    this.groups = new Map();
    /** The last presentation times, in order.
     * @type {number[]} */
    this.times = [];
  }

  /**
   * Returns the times of the next frame, in microseconds.
   *
   * @param {number} group
   * @param {number} presentationUs
   * @returns {{ decodeUs: number, presentationUs: number, durationUs: number }}
   */
  next(group, presentationUs) {
    this.times.push(presentationUs);
    if (this.times.length > TIMES_MAX) this.times.shift();
    const shortest = this.#shortestUs();
    const known = this.groups.get(group);
    let decodeUs = presentationUs;
    if (!known) decodeUs -= shortest ?? 0;
    else if (presentationUs > known.highestUs) decodeUs = Math.max(known.highestUs, presentationUs - REORDER_US_MAX);
    // Earlier frames of the group have earlier decode times, even if they are shown later (a pyramid of B-frames).
    if (known) decodeUs = Math.max(decodeUs, Math.min(known.decodeUs, presentationUs + REORDER_US_MAX));
    this.groups.set(group, { highestUs: Math.max(known?.highestUs ?? presentationUs, presentationUs), decodeUs });
    forgetFirst(this.groups);
    return { decodeUs, presentationUs, durationUs: shortest ?? USUAL_DURATION_US };
  }

  /** @returns {number | undefined} the shortest time between two recent frames */
  #shortestUs() {
    const sorted = this.times.toSorted((one, other) => one - other);
    const apart = sorted.slice(1).flatMap((time, place) => (time > sorted[place] ? [time - sorted[place]] : []));
    return apart.length > 0 ? Math.min(DURATION_US_MAX, ...apart) : undefined;
  }
}

/** Finds the frames in the objects of one track. */
export class Unpacker {
  /** @param {import("./catalog.js").TrackPlan} plan */
  constructor(plan) {
    this.plan = plan;
    /** For objects without a tag: the frames so far, and the reference frames in each of the last groups. */
    this.number = 0;
    /** @type {Map<number, number>} */
    this.references = new Map();
    this.clock = new LocClock();
    /** Bytes of the lengths before NAL units. */
    this.lengthBytes = lengthBytesOf(plan.description);
  }

  /**
   * Reads an object.
   *
   * @param {import("../moqt/streams.js").WholeObject} object
   * @param {number} nowUs when it arrived
   * @returns {MediaFrame[]} empty if it cannot be parsed
   */
  read(object, nowUs) {
    const bytes = object.payload.length;
    const tag = tagOf(object.properties);
    try {
      if (!isFragment(object.payload)) {
        const description = findBytes(object.properties, LOC_VIDEO_CONFIG)?.slice();
        if (description) this.lengthBytes = lengthBytesOf(description);
        const frame = tag ?? this.#inferred(object, nowUs, object.payload, this.#locTimes(object));
        return frame ? [{ tag: frame, isTagged: tag !== undefined, data: object.payload, bytes, ...(description ? { description } : {}) }] : [];
      }
      const wanted = this.plan.init.find((track) => track.media === this.plan.media);
      const samples = readFragment(object.payload, this.plan.init).filter((sample) => sample.trackId === wanted?.id);
      return samples.flatMap((sample, place) => {
        const known = tag && { ...tag, ...(samples.length > 1 ? times(sample) : {}) };
        const frame = known ?? this.#inferred(object, nowUs, sample.data, times(sample));
        return frame ? [{ tag: frame, isTagged: tag !== undefined, data: sample.data, bytes: place === 0 ? bytes : 0 }] : [];
      });
    } catch (error) {
      if (error instanceof RangeError) return [];
      throw error;
    }
  }

  /** @param {import("../moqt/streams.js").WholeObject} object */
  #locTimes({ group, properties }) {
    for (const type of LOC_TIMESTAMPS) {
      const value = findInt(properties, type);
      if (value === undefined) continue;
      const scale = Number(findInt(properties, LOC_TIMESCALE) ?? this.plan.timescale ?? 1_000_000n);
      const us = Math.floor((Number(value) * 1e6) / scale);
      return us <= TIME_US_MAX ? this.clock.next(Number(group), us) : undefined;
    }
    return undefined;
  }

  /**
   * Describes a frame without a tag.
   *
   * @param {import("../moqt/streams.js").WholeObject} object
   * @param {number} nowUs
   * @param {Uint8Array} data
   * @param {{ decodeUs: number, presentationUs: number, durationUs: number } | undefined} when
   * @returns {import("./tag.js").FrameTag | undefined}
   */
  #inferred(object, nowUs, data, when) {
    if (!when) return undefined;
    const group = Number(object.group);
    const isAvc = this.plan.codec.startsWith("avc");
    const isKey = object.id === 0n;
    /** @type {{ kind: import("../playout/reorder.js").Kind, isDisposable: boolean }} */
    const otherwise = { kind: isKey ? "I" : "P", isDisposable: false };
    const { kind, isDisposable } = (isAvc ? frameKind(data, this.lengthBytes) : undefined) ?? otherwise;
    const references = kind === "I" ? 0 : (this.references.get(group) ?? 0);
    if (!isDisposable) this.references.set(group, references + 1);
    forgetFirst(this.references);
    return { kind, isDisposable, references, availableUs: nowUs, ...when, number: this.number++ };
  }
}

/**
 * Returns the frame tag of an object.
 *
 * @param {import("../moqt/property.js").Property[]} properties
 * @returns {import("./tag.js").FrameTag | undefined}
 */
export function tagOf(properties) {
  const bytes = findBytes(properties, FRAME_PROPERTY);
  return bytes && readTag(bytes);
}

/**
 * Whether a payload is a fragment instead of a coded frame. A publisher that reconnected may use another packaging than
 * the relay's old catalog says.
 *
 * @param {Uint8Array} payload
 */
function isFragment(payload) {
  return payload.length > 8 && ["moof", "styp", "prft", "emsg"].includes(String.fromCharCode(...payload.subarray(4, 8)));
}

/**
 * Removes the group that was inserted first if there are too many. The lowest number may belong to a publisher that
 * restarted.
 *
 * @param {Map<number, unknown>} groups
 */
function forgetFirst(groups) {
  for (const group of groups.keys()) {
    if (groups.size <= GROUPS_MAX) return;
    groups.delete(group);
  }
}

/** @param {import("./mp4.js").Sample} sample */
function times({ decodeUs, presentationUs, durationUs }) {
  return { decodeUs, presentationUs, durationUs };
}
