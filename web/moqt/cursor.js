/**
 * Reads and writes fields in bytes.
 */

import { Short, Violation } from "./error.js";
import { decode, encode } from "./varint.js";

/** Reads fields one after the other. Throws {@link Short} if the bytes end within a field. */
export class Cursor {
  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  /** @returns {boolean} whether all bytes were read */
  get isEmpty() {
    return this.at >= this.bytes.length;
  }

  /** @returns {number} one byte */
  uint8() {
    if (this.isEmpty) throw new Short();
    return this.bytes[this.at++];
  }

  /** @returns {bigint} a variable-length integer */
  varint() {
    const read = decode(this.bytes, this.at);
    if (!read) throw new Short();
    this.at += read[1];
    return read[0];
  }

  /**
   * Reads a length that is followed by as many bytes.
   *
   * @param {number} max the largest length accepted
   * @param {string} beyond the violation if it is larger
   * @returns {number}
   */
  length(max, beyond) {
    const length = this.varint();
    if (length > BigInt(max)) throw new Violation(beyond);
    return Number(length);
  }

  /**
   * Returns the next bytes as a view, not a copy.
   *
   * @param {number | bigint} length
   * @returns {Uint8Array}
   */
  take(length) {
    if (BigInt(length) > BigInt(this.bytes.length - this.at)) throw new Short();
    const taken = this.bytes.subarray(this.at, this.at + Number(length));
    this.at += taken.length;
    return taken;
  }

  /** @returns {Uint8Array} a view of the remaining bytes */
  rest() {
    return this.take(this.bytes.length - this.at);
  }
}

/** Collects fields. */
export class Writer {
  constructor() {
    /** @type {number[]} */
    this.out = [];
  }

  /** @param {number} value */
  uint8(value) {
    this.out.push(value);
  }

  /** @param {bigint | number} value */
  varint(value) {
    encode(value, this.out);
  }

  /** @param {Uint8Array | number[]} bytes */
  bytes(bytes) {
    for (const byte of bytes) this.out.push(byte);
  }

  /**
   * Writes the length of the bytes, then the bytes.
   *
   * @param {Uint8Array | number[]} bytes
   */
  prefixed(bytes) {
    this.varint(bytes.length);
    this.bytes(bytes);
  }

  /** @returns {Uint8Array} */
  finish() {
    return Uint8Array.from(this.out);
  }
}

const decoder = new TextDecoder();
const strictDecoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const encoder = new TextEncoder();

/**
 * Decodes text for people. Replaces what is not UTF-8.
 *
 * @param {Uint8Array} bytes
 * @returns {string}
 */
export function text(bytes) {
  return decoder.decode(bytes);
}

/**
 * Decodes text that must be UTF-8.
 *
 * @param {Uint8Array} bytes
 * @returns {string | undefined}
 */
export function strictText(bytes) {
  try {
    return strictDecoder.decode(bytes);
  } catch {
    return undefined;
  }
}

/**
 * @param {string} value
 * @returns {Uint8Array}
 */
export function utf8(value) {
  return encoder.encode(value);
}

/**
 * Concatenates both; without a copy if the first is empty.
 *
 * @param {Uint8Array} first
 * @param {Uint8Array} second
 * @returns {Uint8Array}
 */
export function concat(first, second) {
  if (first.length === 0) return second;
  const joined = new Uint8Array(first.length + second.length);
  joined.set(first);
  joined.set(second, first.length);
  return joined;
}
