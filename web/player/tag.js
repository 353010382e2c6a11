/**
 * What the origin says about a frame, as a property of its object (`crates/live/src/packaging.rs`).
 */

import { Cursor, Writer } from "../moqt/cursor.js";
import { Short } from "../moqt/error.js";

/** The property of an object that tells about its frame. */
export const FRAME_PROPERTY = 0x2f1dn;

const KINDS = /** @type {const} */ (["I", "P", "B"]);
/** A time that sums of a few of them stay exact. */
const TIME_MAX = 1n << 52n;

/**
 * Times are microseconds.
 *
 * @typedef {object} FrameTag
 * @property {import("../playout/reorder.js").Kind} kind
 * @property {boolean} isDisposable whether no other frame needs it
 * @property {number} references how many frames of the group before it others may need
 * @property {number} availableUs when the origin had it
 * @property {number} decodeUs media time
 * @property {number} presentationUs media time
 * @property {number} durationUs
 * @property {number} number how many frames of the track the origin had before it
 */

/**
 * Reads a tag.
 *
 * @param {Uint8Array} bytes
 * @returns {FrameTag | undefined} nothing if it is broken
 */
export function readTag(bytes) {
  const cursor = new Cursor(bytes);
  try {
    const first = cursor.varint();
    const kind = KINDS[Number(first & 3n)];
    const [availableUs, decodeUs, compositionUs, durationUs] = [time(cursor), time(cursor), time(cursor), time(cursor)];
    const number = Number(cursor.varint());
    if (!kind || availableUs === undefined || decodeUs === undefined || compositionUs === undefined || durationUs === undefined) {
      return undefined;
    }
    return {
      kind,
      isDisposable: (first & 4n) !== 0n,
      references: Number(first >> 3n),
      availableUs,
      decodeUs,
      presentationUs: decodeUs + compositionUs,
      durationUs,
      number,
    };
  } catch (error) {
    if (error instanceof Short) return undefined;
    throw error;
  }
}

/**
 * Writes a tag.
 *
 * @param {FrameTag} tag
 * @returns {Uint8Array}
 */
export function writeTag(tag) {
  const writer = new Writer();
  writer.varint(tag.references * 8 + (tag.isDisposable ? 4 : 0) + KINDS.indexOf(tag.kind));
  for (const us of [tag.availableUs, tag.decodeUs, tag.presentationUs - tag.decodeUs, tag.durationUs]) {
    const value = BigInt(Math.round(us));
    writer.varint(value >= 0n ? value << 1n : (-value << 1n) - 1n);
  }
  writer.varint(tag.number);
  return writer.finish();
}

/**
 * A time with its sign in the lowest bit.
 *
 * @param {Cursor} cursor
 * @returns {number | undefined} nothing if it is out of range
 */
function time(cursor) {
  const value = cursor.varint();
  const magnitude = (value & 1n) === 0n ? value >> 1n : -(value >> 1n) - 1n;
  return magnitude > TIME_MAX || magnitude < -TIME_MAX ? undefined : Number(magnitude);
}
