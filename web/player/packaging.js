/**
 * Objects into frames: the thesis's fragments (which are those of CMSF), and LOC (draft-ietf-moq-loc, versions up to 04).
 */

import { findBytes, findInt } from "../moqt/property.js";
import { frameKind } from "./h264.js";
import { readFragment } from "./mp4.js";
import { FRAME_PROPERTY, readTag } from "./tag.js";

/** When an object is shown, in the order in which versions of LOC are tried. */
const LOC_TIMESTAMPS = [0x10n, 0x0an, 0x06n];
const LOC_TIMESCALE = 0x08n;
const LOC_VIDEO_CONFIG = 0x0dn;

/**
 * @typedef {object} MediaFrame a frame or a piece of sound, as it goes into a decoder
 * @property {import("./tag.js").FrameTag} tag
 * @property {boolean} isTagged whether the origin said when it was available
 * @property {Uint8Array} data
 * @property {Uint8Array} [description] a new configuration that comes with it
 * @property {number} bytes of the object's payload
 */

/** Makes frames of the objects of one track. */
export class Unpacker {
  /** @param {import("./catalog.js").TrackPlan} plan */
  constructor(plan) {
    this.plan = plan;
    /** For objects without a tag: frames so far, and references in each of the last groups. */
    this.number = 0;
    /** @type {Map<number, number>} */
    this.references = new Map();
    this.lastUs = 0;
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
        const frame = tag ?? this.#inferred(object, nowUs, object.payload, this.#locUs(object.properties));
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

  /** @param {import("../moqt/property.js").Property[]} properties */
  #locUs(properties) {
    for (const type of LOC_TIMESTAMPS) {
      const value = findInt(properties, type);
      if (value === undefined) continue;
      const scale = Number(findInt(properties, LOC_TIMESCALE) ?? this.plan.timescale ?? 1_000_000n);
      const us = Math.round((Number(value) * 1e6) / scale);
      const durationUs = this.lastUs > 0 && us > this.lastUs ? Math.min(us - this.lastUs, 200_000) : 33_333;
      this.lastUs = us;
      return { decodeUs: us, presentationUs: us, durationUs };
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
    const { kind, isDisposable } = (isAvc ? frameKind(data) : undefined) ?? otherwise;
    const references = kind === "I" ? 0 : (this.references.get(group) ?? 0);
    if (!isDisposable) this.references.set(group, references + 1);
    while (this.references.size > 8) this.references.delete(Math.min(...this.references.keys()));
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

/** @param {import("./mp4.js").Sample} sample */
function times({ decodeUs, presentationUs, durationUs }) {
  return { decodeUs, presentationUs, durationUs };
}
