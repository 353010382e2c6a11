/**
 * Objects into frames: the thesis's fragments (which are those of CMSF), and LOC (draft-ietf-moq-loc, versions up to 04).
 */

import { findBytes, findInt } from "../moqt/property.js";
import { frameKind, lengthBytesOf } from "./h264.js";
import { readFragment } from "./mp4.js";
import { FRAME_PROPERTY, readTag } from "./tag.js";

/** When an object is shown, in the order in which versions of LOC are tried. */
const LOC_TIMESTAMPS = [0x10n, 0x0an, 0x06n];
const LOC_TIMESCALE = 0x08n;
const LOC_VIDEO_CONFIG = 0x0dn;
/** How long a frame lasts before which none came, in microseconds. */
const USUAL_DURATION_US = 33_333;
/** No frame is taken to last longer, in microseconds. */
const DURATION_US_MAX = 200_000;
/** No frame is taken to be decoded earlier or later than this before or after it is shown, in microseconds. */
const REORDER_US_MAX = 500_000;
/** Presentation times by whose distances it is told how long a frame lasts. */
const TIMES_MAX = 8;
/** Groups of which something is remembered; the one that came first is forgotten beyond. */
export const GROUPS_MAX = 8;
/** A time that sums of a few of them stay exact. */
const TIME_US_MAX = 2 ** 52;

/**
 * @typedef {object} MediaFrame a frame or a piece of sound, as it goes into a decoder
 * @property {import("./tag.js").FrameTag} tag
 * @property {boolean} isTagged whether the origin said when it was available
 * @property {Uint8Array} data
 * @property {Uint8Array} [description] a new configuration that comes with it
 * @property {number} bytes of the object's payload
 */

/**
 * When frames are decoded of which LOC says only when they are shown; the crate `live` does the same, and both pass
 * `vectors/live/loc-times.json`.
 *
 * Within a group frames come in the order of decoding. One that is shown later than all before it may be followed by others that
 * belong before it; so it is decoded when the latest one before it is shown, and those when they are shown themselves.
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
   * The times of the next frame, in microseconds.
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
    // What came before it in its group is decoded before it, even where it is shown later (a pyramid of B-frames).
    if (known) decodeUs = Math.max(decodeUs, Math.min(known.decodeUs, presentationUs + REORDER_US_MAX));
    this.groups.set(group, { highestUs: Math.max(known?.highestUs ?? presentationUs, presentationUs), decodeUs });
    forgetFirst(this.groups);
    return { decodeUs, presentationUs, durationUs: shortest ?? USUAL_DURATION_US };
  }

  /** @returns {number | undefined} the shortest time between two of the frames that came lately */
  #shortestUs() {
    const sorted = this.times.toSorted((one, other) => one - other);
    const apart = sorted.slice(1).flatMap((time, place) => (time > sorted[place] ? [time - sorted[place]] : []));
    return apart.length > 0 ? Math.min(DURATION_US_MAX, ...apart) : undefined;
  }
}

/** Makes frames of the objects of one track. */
export class Unpacker {
  /** @param {import("./catalog.js").TrackPlan} plan */
  constructor(plan) {
    this.plan = plan;
    /** For objects without a tag: frames so far, and references in each of the last groups. */
    this.number = 0;
    /** @type {Map<number, number>} */
    this.references = new Map();
    this.clock = new LocClock();
    /** Of the lengths in front of NAL units. */
    this.lengthBytes = lengthBytesOf(plan.description);
  }

  /**
   * Reads an object.
   *
   * @param {import("../moqt/session.js").WholeObject} object
   * @param {number} nowUs when it came
   * @returns {MediaFrame[]} none if it cannot be read
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

  /** @param {import("../moqt/session.js").WholeObject} object */
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
   * What can be told of a frame that has no tag of ours.
   *
   * @param {import("../moqt/session.js").WholeObject} object
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
 * What the origin says about an object's frame.
 *
 * @param {import("../moqt/property.js").Property[]} properties
 * @returns {import("./tag.js").FrameTag | undefined}
 */
export function tagOf(properties) {
  const bytes = findBytes(properties, FRAME_PROPERTY);
  return bytes && readTag(bytes);
}

/**
 * Whether a payload is a fragment rather than a coded frame. A publisher that came back may pack in another way than the
 * catalog says that a relay still has.
 *
 * @param {Uint8Array} payload
 */
function isFragment(payload) {
  return payload.length > 8 && ["moof", "styp", "prft", "emsg"].includes(String.fromCharCode(...payload.subarray(4, 8)));
}

/**
 * Forgets the group that came first of too many: not the one with the lowest number, which may be of a publisher that began anew.
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
