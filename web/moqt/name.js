/**
 * Track names: fields of bytes, and their text form [moqt-18 §1.5, §2.4.1].
 */

import { Cursor, Writer, strictText, utf8 } from "./cursor.js";
import { Violation } from "./error.js";

/** The most fields of a namespace. */
export const NAMESPACE_FIELDS_MAX = 32;
/** The most bytes of a namespace and a name together. */
export const FULL_NAME_BYTES_MAX = 4096;

/**
 * @typedef {Uint8Array[]} Namespace
 * @typedef {{ namespace: Namespace, trackName: Uint8Array }} FullTrackName
 */

/**
 * Returns a namespace of text fields.
 *
 * @param {string} text fields, separated by `/`
 * @returns {Namespace}
 */
export function namespaceOf(text) {
  return text.split("/").filter((field) => field !== "").map(utf8);
}

/**
 * @param {Cursor} cursor
 * @returns {Namespace}
 */
export function readNamespace(cursor) {
  const fields = cursor.varint();
  if (fields > BigInt(NAMESPACE_FIELDS_MAX)) throw new Violation("a namespace has more than 32 fields");
  const namespace = [];
  let bytes = 0;
  for (let i = 0n; i < fields; i++) {
    const length = cursor.length(FULL_NAME_BYTES_MAX, TOO_LONG);
    if (length === 0) throw new Violation("a field of a namespace is empty");
    bytes += length;
    if (bytes > FULL_NAME_BYTES_MAX) throw new Violation(TOO_LONG);
    namespace.push(cursor.take(length).slice());
  }
  return namespace;
}

/**
 * @param {Cursor} cursor
 * @returns {FullTrackName}
 */
export function readFullTrackName(cursor) {
  const namespace = readNamespace(cursor);
  const trackName = cursor.take(cursor.length(FULL_NAME_BYTES_MAX, TOO_LONG)).slice();
  if (bytesOf(namespace) + trackName.length > FULL_NAME_BYTES_MAX) throw new Violation(TOO_LONG);
  return { namespace, trackName };
}

/**
 * @param {Writer} writer
 * @param {Namespace} namespace
 */
export function writeNamespace(writer, namespace) {
  writer.varint(namespace.length);
  for (const field of namespace) writer.prefixed(field);
}

/**
 * @param {Writer} writer
 * @param {FullTrackName} name
 */
export function writeFullTrackName(writer, name) {
  writeNamespace(writer, name.namespace);
  writer.prefixed(name.trackName);
}

/**
 * Returns the text form of a full name: `fields-of-namespace--name`, with other bytes as `.xx` [moqt-18 §1.5].
 *
 * @param {FullTrackName} name
 * @returns {string}
 */
export function formatName({ namespace, trackName }) {
  return `${namespace.map(escape).join("-")}--${escape(trackName)}`;
}

/**
 * Parses the text form of a full name. Accepts only what {@link formatName} writes [moqt-18 §1.5.1].
 *
 * @param {string} text
 * @returns {FullTrackName | undefined}
 */
export function parseName(text) {
  const middle = text.indexOf("--");
  if (middle < 0) return undefined;
  const fields = middle === 0 ? [] : text.slice(0, middle).split("-").map(unescape);
  const trackName = unescape(text.slice(middle + 2));
  if (!trackName || fields.length > NAMESPACE_FIELDS_MAX) return undefined;
  /** @type {Namespace} */
  const namespace = [];
  for (const field of fields) {
    if (!field || field.length === 0) return undefined;
    namespace.push(field);
  }
  if (bytesOf(namespace) + trackName.length > FULL_NAME_BYTES_MAX) return undefined;
  return { namespace, trackName };
}

/**
 * Returns a namespace for people: fields separated by `/`, as far as they are text.
 *
 * @param {Namespace} namespace
 * @returns {string}
 */
export function readable(namespace) {
  return namespace.map((field) => strictText(field) ?? escape(field)).join("/");
}

/** @param {Namespace} namespace */
function bytesOf(namespace) {
  return namespace.reduce((sum, field) => sum + field.length, 0);
}

/** @param {number} byte */
function isLiteral(byte) {
  return (byte >= 0x30 && byte <= 0x39) || (byte >= 0x41 && byte <= 0x5a) || (byte >= 0x61 && byte <= 0x7a) || byte === 0x5f;
}

/** @param {Uint8Array} bytes */
function escape(bytes) {
  let out = "";
  for (const byte of bytes) {
    out += isLiteral(byte) ? String.fromCharCode(byte) : `.${byte.toString(16).padStart(2, "0")}`;
  }
  return out;
}

/**
 * @param {string} text
 * @returns {Uint8Array | undefined}
 */
function unescape(text) {
  const out = [];
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (isLiteral(code)) {
      out.push(code);
      continue;
    }
    const digits = text.slice(at + 1, at + 3);
    const byte = Number.parseInt(digits, 16);
    if (text[at] !== "." || !/^[0-9a-f]{2}$/.test(digits) || isLiteral(byte)) return undefined;
    out.push(byte);
    at += 2;
  }
  return Uint8Array.from(out);
}

const TOO_LONG = "a full track name is longer than 4096 bytes";
