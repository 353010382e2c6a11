/**
 * The frame tag: the origin's description of a frame, a property of its object (`crates/live/src/packaging.rs`).
 */

import { Cursor, Writer } from "../moqt/cursor.js";
import { Short } from "../moqt/error.js";

/** The property type of the frame tag. */
export const FRAME_PROPERTY = 0x2f1dn;

const KINDS = /** @type {const} */ (["I", "P", "B"]);
/** The limit of times, so that sums of a few stay exact. */
const TIME_MAX = 1n << 52n;

/**
 * Times are in microseconds.
 *
 * @typedef {object} FrameTag
 * @property {import("../playout/reorder.js").Kind} kind
 * @property {boolean} isDisposable whether no other frame needs it
 * @property {number} references the number of earlier frames of the group that others may need
 * @property {number} availableUs when the origin had it
 * @property {number} decodeUs media time
 * @property {number} presentationUs media time
 * @property {number} durationUs
 * @property {number} number the number of earlier frames of the track at the origin
 */

/**
 * Decodes a tag.
 *
 * @param {Uint8Array} bytes
 * @returns {FrameTag | undefined} undefined if it is invalid
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
 * Encodes a tag.
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
 * Reads a time with its sign in the lowest bit.
 *
 * @param {Cursor} cursor
 * @returns {number | undefined} undefined if it is out of range
 */
function time(cursor) {
  const value = cursor.varint();
  const magnitude = (value & 1n) === 0n ? value >> 1n : -(value >> 1n) - 1n;
  return magnitude > TIME_MAX || magnitude < -TIME_MAX ? undefined : Number(magnitude);
}
