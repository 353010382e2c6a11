/**
 * Key-value pairs, and the properties of tracks and objects that consist of them [moqt-18 §1.4.3, §2.5, §12].
 */

import { Cursor, Writer } from "./cursor.js";
import { Short, Violation } from "./error.js";
import { VARINT_MAX } from "./varint.js";

/** Properties that only the original publisher may change [moqt-18 §12.7]. */
export const IMMUTABLE = 0x0bn;
/** The priority of subgroups without one [moqt-18 §12.4]. */
export const DEFAULT_PUBLISHER_PRIORITY = 0x0en;
/** The publisher's preferred group order: 1 ascending, 2 descending [moqt-18 §12.5]. */
export const DEFAULT_PUBLISHER_GROUP_ORDER = 0x22n;
/** Whether a subscriber may request a new group [moqt-18 §12.6]. */
export const DYNAMIC_GROUPS = 0x30n;
/** The most bytes of one pair's value. */
export const VALUE_BYTES_MAX = 65535;

/**
 * A pair: an integer for even types, bytes for odd ones.
 *
 * @typedef {{ type: bigint, int: bigint } | { type: bigint, bytes: Uint8Array }} Property
 */

/**
 * Reads pairs that fill `bytes`.
 *
 * @param {Uint8Array} bytes
 * @returns {Property[]}
 */
export function readPairs(bytes) {
  const cursor = new Cursor(bytes);
  /** @type {Property[]} */
  const pairs = [];
  let type = 0n;
  try {
    while (!cursor.isEmpty) {
      type += cursor.varint();
      if (type > VARINT_MAX) throw new Violation("the type of a key-value pair is above 2^64 - 1");
      if (type % 2n === 0n) {
        pairs.push({ type, int: cursor.varint() });
      } else {
        const length = cursor.length(VALUE_BYTES_MAX, "the value of a key-value pair is longer than 65535");
        pairs.push({ type, bytes: cursor.take(length) });
      }
    }
  } catch (error) {
    if (error instanceof Short) throw new Violation("a key-value pair is cut off", "KEY_VALUE_FORMATTING_ERROR");
    throw error;
  }
  return pairs;
}

/**
 * Writes pairs, in ascending order of type.
 *
 * @param {Writer} writer
 * @param {Property[]} pairs
 */
export function writePairs(writer, pairs) {
  let previous = 0n;
  for (const pair of pairs) {
    writer.varint(pair.type - previous);
    previous = pair.type;
    if ("int" in pair) writer.varint(pair.int);
    else writer.prefixed(pair.bytes);
  }
}

/**
 * Reads properties after their length [moqt-18 §11.2.1.2].
 *
 * @param {Cursor} cursor
 * @param {number} max the most bytes accepted
 * @returns {Property[]}
 */
export function readProperties(cursor, max) {
  return readPairs(cursor.take(cursor.length(max, "the properties of an object are too long")));
}

/**
 * Writes properties after their length.
 *
 * @param {Writer} writer
 * @param {Property[]} properties
 */
export function writeProperties(writer, properties) {
  const inner = new Writer();
  writePairs(inner, properties);
  writer.prefixed(inner.out);
}

/**
 * Reads the properties of a track, which fill the rest of a message.
 *
 * @param {Cursor} cursor
 * @returns {Property[]}
 */
export function readTrackProperties(cursor) {
  const properties = readPairs(cursor.rest());
  const priority = findInt(properties, DEFAULT_PUBLISHER_PRIORITY);
  if (priority !== undefined && priority > 255n) throw new Violation("DEFAULT_PUBLISHER_PRIORITY is above 255");
  const order = findInt(properties, DEFAULT_PUBLISHER_GROUP_ORDER);
  if (order !== undefined && order !== 1n && order !== 2n) {
    throw new Violation("DEFAULT_PUBLISHER_GROUP_ORDER is neither 1 nor 2");
  }
  const dynamic = findInt(properties, DYNAMIC_GROUPS);
  if (dynamic !== undefined && dynamic > 1n) throw new Violation("DYNAMIC_GROUPS is above 1");
  return properties;
}

/**
 * Finds the first property of a type, also among the immutable ones.
 *
 * @param {Property[]} properties
 * @param {bigint} type
 * @returns {Property | undefined}
 */
export function find(properties, type) {
  const found = properties.find((property) => property.type === type);
  if (found) return found;
  const immutable = properties.find((property) => property.type === IMMUTABLE);
  if (!immutable || !("bytes" in immutable)) return undefined;
  try {
    return readPairs(immutable.bytes).find((property) => property.type === type);
  } catch {
    return undefined;
  }
}

/**
 * @param {Property[]} properties
 * @param {bigint} type an even type
 * @returns {bigint | undefined}
 */
export function findInt(properties, type) {
  const found = find(properties, type);
  return found && "int" in found ? found.int : undefined;
}

/**
 * @param {Property[]} properties
 * @param {bigint} type an odd type
 * @returns {Uint8Array | undefined}
 */
export function findBytes(properties, type) {
  const found = find(properties, type);
  return found && "bytes" in found ? found.bytes : undefined;
}
