/**
 * Message parameters of requests and their responses, for the peer only [moqt-18 §10.2].
 */

import { Cursor, Writer } from "./cursor.js";
import { Short, Violation } from "./error.js";
import { readNamespace, writeNamespace } from "./name.js";
import { VARINT_MAX } from "./varint.js";

/** The most authorization tokens in one message. */
export const TOKENS_MAX = 64;

/**
 * @typedef {{ group: bigint, object: bigint }} Location
 *
 * @typedef {{ type: "NextGroupStart" } | { type: "LargestObject" }
 *   | { type: "AbsoluteStart", start: Location }
 *   | { type: "AbsoluteRange", start: Location, end: Location }} Filter which objects a subscription covers
 *
 * @typedef {{ aliasType: "DELETE", alias: bigint } | { aliasType: "USE_ALIAS", alias: bigint }
 *   | { aliasType: "REGISTER", alias: bigint, tokenType: bigint, value: Uint8Array }
 *   | { aliasType: "USE_VALUE", tokenType: bigint, value: Uint8Array }} Token
 *
 * @typedef {object} Parameters times are milliseconds
 * @property {bigint} [objectDeliveryTimeout]
 * @property {Token[]} [authorizationTokens]
 * @property {bigint} [rendezvousTimeout]
 * @property {bigint} [subgroupDeliveryTimeout]
 * @property {bigint} [expires]
 * @property {Location} [largestObject]
 * @property {bigint} [fillTimeout]
 * @property {boolean} [forward]
 * @property {bigint} [subscriberPriority] 0 to 255
 * @property {Filter} [filter]
 * @property {"ascending" | "descending"} [groupOrder]
 * @property {bigint} [newGroupRequest]
 * @property {Uint8Array[]} [trackNamespacePrefix]
 */

/**
 * The messages that parameters appear in.
 *
 * @typedef {"SUBSCRIBE" | "SUBSCRIBE_OK" | "PUBLISH" | "FETCH" | "FETCH_OK" | "TRACK_STATUS" | "PUBLISH_NAMESPACE"
 *   | "SUBSCRIBE_NAMESPACE" | "SUBSCRIBE_TRACKS" | "REQUEST_UPDATE" | "REQUEST_OK"} Scope
 */

/**
 * @template T
 * @typedef {object} Row one parameter of draft-18
 * @property {bigint} code
 * @property {keyof Parameters} key
 * @property {Scope[]} scopes messages that may contain it
 * @property {(cursor: Cursor) => T} read
 * @property {(writer: Writer, value: T) => void} write
 */

/** @type {Scope[]} */
const ANY_REQUEST = [
  "SUBSCRIBE", "PUBLISH", "FETCH", "TRACK_STATUS", "PUBLISH_NAMESPACE", "SUBSCRIBE_NAMESPACE", "SUBSCRIBE_TRACKS", "REQUEST_UPDATE",
];

/** @type {Row<any>[]} in ascending order of code */
const ROWS = [
  { code: 0x02n, key: "objectDeliveryTimeout", scopes: ["SUBSCRIBE", "REQUEST_OK", "REQUEST_UPDATE"], ...varint() },
  { code: 0x03n, key: "authorizationTokens", scopes: ANY_REQUEST, read: readPrefixedToken, write: writePrefixedToken },
  { code: 0x04n, key: "rendezvousTimeout", scopes: ["SUBSCRIBE"], ...varint() },
  { code: 0x06n, key: "subgroupDeliveryTimeout", scopes: ["SUBSCRIBE", "REQUEST_OK", "REQUEST_UPDATE"], ...varint() },
  { code: 0x08n, key: "expires", scopes: ["SUBSCRIBE_OK", "PUBLISH", "REQUEST_OK"], ...varint() },
  { code: 0x09n, key: "largestObject", scopes: ["SUBSCRIBE_OK", "PUBLISH", "REQUEST_OK"], read: readLocation, write: writeLocation },
  { code: 0x0an, key: "fillTimeout", scopes: ["FETCH"], ...varint() },
  {
    code: 0x10n,
    key: "forward",
    scopes: ["SUBSCRIBE", "REQUEST_UPDATE", "PUBLISH", "REQUEST_OK", "SUBSCRIBE_TRACKS"],
    read: (cursor) => oneOf(cursor.uint8(), [false, true], 0, "FORWARD is neither 0 nor 1"),
    write: (writer, value) => writer.uint8(value ? 1 : 0),
  },
  {
    code: 0x20n,
    key: "subscriberPriority",
    scopes: ["SUBSCRIBE", "FETCH", "REQUEST_UPDATE", "REQUEST_OK"],
    read: (cursor) => BigInt(cursor.uint8()),
    write: (writer, value) => writer.uint8(Number(value)),
  },
  { code: 0x21n, key: "filter", scopes: ["SUBSCRIBE", "REQUEST_OK", "REQUEST_UPDATE"], read: readFilter, write: writeFilter },
  {
    code: 0x22n,
    key: "groupOrder",
    scopes: ["SUBSCRIBE", "REQUEST_OK", "FETCH"],
    read: (cursor) => oneOf(cursor.uint8(), ["ascending", "descending"], 1, "GROUP_ORDER is neither 1 nor 2"),
    write: (writer, value) => writer.uint8(value === "descending" ? 2 : 1),
  },
  { code: 0x32n, key: "newGroupRequest", scopes: ["SUBSCRIBE", "REQUEST_OK", "REQUEST_UPDATE"], ...varint() },
  { code: 0x34n, key: "trackNamespacePrefix", scopes: ["REQUEST_UPDATE"], read: readNamespace, write: writeNamespace },
];

/**
 * Reads the number of parameters, and the parameters.
 *
 * @param {Cursor} cursor
 * @param {Scope} scope
 * @returns {Parameters}
 */
export function readParameters(cursor, scope) {
  /** @type {Record<string, unknown>} */
  const parameters = {};
  /** @type {Token[]} */
  const tokens = [];
  let code = 0n;
  const count = cursor.varint();
  for (let i = 0n; i < count; i++) {
    code += cursor.varint();
    if (code > VARINT_MAX) throw new Violation("the type of a parameter is above 2^64 - 1");
    const row = ROWS.find((known) => known.code === code);
    if (!row) throw new Violation("unknown parameter");
    if (!row.scopes.includes(scope)) throw new Violation("a parameter is not permitted in this message");
    if (row.key === "authorizationTokens") {
      if (tokens.length === TOKENS_MAX) {
        throw new Violation("more authorization tokens in a message than this endpoint accepts", "INTERNAL_ERROR");
      }
      tokens.push(row.read(cursor));
      parameters[row.key] = tokens;
      continue;
    }
    if (row.key in parameters) throw new Violation("a parameter is repeated");
    parameters[row.key] = row.read(cursor);
  }
  return parameters;
}

/**
 * Writes the number of parameters, and the parameters.
 *
 * @param {Writer} writer
 * @param {Parameters} parameters
 */
export function writeParameters(writer, parameters) {
  /** @type {[Row<any>, unknown][]} */
  const values = ROWS.flatMap((row) => {
    const value = parameters[row.key];
    if (value === undefined) return [];
    if (row.key !== "authorizationTokens") return [/** @type {[Row<any>, unknown]} */ ([row, value])];
    return (parameters.authorizationTokens ?? []).map((token) => /** @type {[Row<any>, unknown]} */ ([row, token]));
  });
  writer.varint(values.length);
  let previous = 0n;
  for (const [row, value] of values) {
    writer.varint(row.code - previous);
    previous = row.code;
    row.write(writer, value);
  }
}

/**
 * @param {Cursor} cursor
 * @returns {Location}
 */
export function readLocation(cursor) {
  return { group: cursor.varint(), object: cursor.varint() };
}

/**
 * @param {Writer} writer
 * @param {Location} location
 */
export function writeLocation(writer, location) {
  writer.varint(location.group);
  writer.varint(location.object);
}

/**
 * Reads a token that fills `bytes` [moqt-18 §10.2.2].
 *
 * @param {Uint8Array} bytes
 * @returns {Token}
 */
export function readToken(bytes) {
  const cursor = new Cursor(bytes);
  const malformed = (/** @type {string} */ reason) => new Violation(reason, "KEY_VALUE_FORMATTING_ERROR");
  try {
    /** @type {Token} */
    let token;
    switch (cursor.varint()) {
      case 0n:
        token = { aliasType: "DELETE", alias: cursor.varint() };
        break;
      case 1n:
        token = { aliasType: "REGISTER", alias: cursor.varint(), tokenType: cursor.varint(), value: cursor.rest() };
        break;
      case 2n:
        token = { aliasType: "USE_ALIAS", alias: cursor.varint() };
        break;
      case 3n:
        token = { aliasType: "USE_VALUE", tokenType: cursor.varint(), value: cursor.rest() };
        break;
      default:
        throw malformed("an authorization token has an unknown alias type");
    }
    if (!cursor.isEmpty) throw malformed("an authorization token is followed by more bytes");
    return token;
  } catch (error) {
    if (error instanceof Short) throw malformed("an authorization token is cut off");
    throw error;
  }
}

/**
 * Writes a token without its length.
 *
 * @param {Writer} writer
 * @param {Token} token
 */
export function writeToken(writer, token) {
  writer.varint({ DELETE: 0, REGISTER: 1, USE_ALIAS: 2, USE_VALUE: 3 }[token.aliasType]);
  if ("alias" in token) writer.varint(token.alias);
  if ("tokenType" in token) {
    writer.varint(token.tokenType);
    writer.bytes(token.value);
  }
}

/** @param {Cursor} cursor */
function readPrefixedToken(cursor) {
  return readToken(cursor.take(cursor.varint()));
}

/**
 * @param {Writer} writer
 * @param {Token} token
 */
function writePrefixedToken(writer, token) {
  const inner = new Writer();
  writeToken(inner, token);
  writer.prefixed(inner.out);
}

/**
 * Reads a filter after its length [moqt-18 §5.1.2].
 *
 * @param {Cursor} outer
 * @returns {Filter}
 */
function readFilter(outer) {
  const cursor = new Cursor(outer.take(outer.varint()));
  const filter = readFilterFields(cursor);
  if (!cursor.isEmpty) throw new Violation("a subscription filter is followed by more bytes");
  return filter;
}

/**
 * @param {Cursor} cursor
 * @returns {Filter}
 */
function readFilterFields(cursor) {
  switch (cursor.varint()) {
    case 1n:
      return { type: "NextGroupStart" };
    case 2n:
      return { type: "LargestObject" };
    case 3n:
      return { type: "AbsoluteStart", start: readLocation(cursor) };
    case 4n: {
      const start = readLocation(cursor);
      const group = start.group + cursor.varint();
      if (group > VARINT_MAX) throw new Violation("the end group of a filter is above 2^64 - 1");
      return { type: "AbsoluteRange", start, end: { group, object: VARINT_MAX } };
    }
    default:
      throw new Violation("a subscription filter has an unknown type");
  }
}

/**
 * @param {Writer} writer
 * @param {Filter} filter
 */
function writeFilter(writer, filter) {
  const inner = new Writer();
  inner.varint({ NextGroupStart: 1, LargestObject: 2, AbsoluteStart: 3, AbsoluteRange: 4 }[filter.type]);
  if ("start" in filter) writeLocation(inner, filter.start);
  if ("end" in filter) inner.varint(filter.end.group - filter.start.group);
  writer.prefixed(inner.out);
}

/** Returns how to read and write an integer. */
function varint() {
  return {
    read: (/** @type {Cursor} */ cursor) => cursor.varint(),
    write: (/** @type {Writer} */ writer, /** @type {bigint} */ value) => writer.varint(value),
  };
}

/**
 * @template T
 * @param {number} code
 * @param {T[]} values the meanings of the codes from `first` on
 * @param {number} first
 * @param {string} otherwise the violation for another code
 * @returns {T}
 */
function oneOf(code, values, first, otherwise) {
  if (code < first || code >= first + values.length) throw new Violation(otherwise);
  return values[code - first];
}
