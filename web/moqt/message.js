/**
 * Control messages, and their reader [moqt-18 §10] [moqt-22 §9].
 */

import { Cursor, Writer, strictText, text, utf8 } from "./cursor.js";
import { goAwayHasRequestId, hasJoiningFetches, hasStateNotify, setupHasLimits, streamCountUnknown } from "./draft.js";
import { Short, Violation } from "./error.js";
import { readFullTrackName, readNamespace, writeFullTrackName, writeNamespace } from "./name.js";
import {
  TOKENS_MAX, everything, isEverything, readLocation, readParameters, readToken, writeLocation, writeParameters, writeToken,
} from "./parameter.js";
import { readPairs, readTrackProperties, writePairs } from "./property.js";
import { VARINT_MAX, decode as decodeVarint } from "./varint.js";

/** The most bytes of a message after its length. */
export const MESSAGE_BYTES_MAX = 65535;
/** The most bytes of a reason phrase. */
export const REASON_BYTES_MAX = 1024;
/** The most bytes of a URI. */
export const URI_BYTES_MAX = 8192;
const REDIRECT = 0x34n;

/**
 * @typedef {import("./draft.js").Draft} Draft
 * @typedef {import("./name.js").Namespace} Namespace
 * @typedef {import("./name.js").FullTrackName} FullTrackName
 * @typedef {import("./parameter.js").Parameters} Parameters
 * @typedef {import("./parameter.js").Location} Location
 * @typedef {import("./parameter.js").Token} Token
 * @typedef {import("./property.js").Property} Property
 *
 * @typedef {{ connectUri: string, namespace: Namespace, trackName: Uint8Array }} Redirect
 *
 * @typedef {object} Setup
 * @property {"SETUP"} type
 * @property {Token[]} authorizationTokens
 * @property {string} [path]
 * @property {string} [authority]
 * @property {string} [implementation]
 * @property {bigint} [maxAuthTokenCacheSize]
 * @property {bigint} [maxFilterRanges] from draft-19 on; absent for 0
 * @property {bigint} [maxRequestUpdates] from draft-19 on
 *
 * @typedef {object} GoAway
 * @property {"GOAWAY"} type
 * @property {string} newSessionUri empty for the current one
 * @property {bigint} [timeout] milliseconds
 * @property {bigint} [requestId] on control streams of draft-18 only
 *
 * @typedef {FullTrackName & { type: "SUBSCRIBE", requestId: bigint, parameters: Parameters }} Subscribe
 * @typedef {{ type: "SUBSCRIBE_OK", trackAlias: bigint, parameters: Parameters, properties: Property[] }} SubscribeOk
 * @typedef {FullTrackName & { type: "PUBLISH", requestId: bigint, trackAlias: bigint, parameters: Parameters,
 *   properties: Property[] }} Publish
 * @typedef {{ type: "PUBLISH_DONE", code: bigint, streamCount?: bigint, reason: string }} PublishDone
 *
 * @typedef {FullTrackName & { type: "Standalone", start: Location, end: Location }} Standalone
 * @typedef {FullTrackName & { type: "Recent", groups: bigint }} Recent from draft-20 on
 * @typedef {{ type: "RelativeJoining", requestId: bigint, groups: bigint }} RelativeJoining until draft-19
 * @typedef {{ type: "AbsoluteJoining", requestId: bigint, group: bigint }} AbsoluteJoining until draft-19
 * @typedef {Standalone | Recent | RelativeJoining | AbsoluteJoining} FetchKind
 * @typedef {{ type: "FETCH", requestId: bigint, fetch: FetchKind, parameters: Parameters }} Fetch
 * @typedef {{ type: "FETCH_OK", endOfTrack: boolean, end: Location, parameters: Parameters, properties: Property[] }} FetchOk
 *
 * @typedef {FullTrackName & { type: "TRACK_STATUS", requestId: bigint, parameters: Parameters }} TrackStatus
 * @typedef {{ type: "PUBLISH_NAMESPACE", requestId: bigint, namespace: Namespace, parameters: Parameters }} PublishNamespace
 * @typedef {{ type: "NAMESPACE" | "NAMESPACE_DONE", suffix: Namespace }} NamespaceChange
 * @typedef {{ type: "SUBSCRIBE_NAMESPACE" | "SUBSCRIBE_TRACKS", requestId: bigint, prefix: Namespace,
 *   parameters: Parameters }} SubscribePrefix
 * @typedef {{ type: "PUBLISH_BLOCKED", suffix: Namespace, trackName: Uint8Array }} PublishBlocked
 * @typedef {{ type: "PUBLISH_STATE_NOTIFY", parameters: Parameters }} PublishStateNotify from draft-20 on
 * @typedef {{ type: "REQUEST_UPDATE", requestId: bigint, parameters: Parameters }} RequestUpdate
 * @typedef {{ type: "REQUEST_OK", parameters: Parameters, properties: Property[] }} RequestOk
 * @typedef {{ type: "REQUEST_ERROR", code: bigint, retryAfter?: bigint, reason: string, redirect?: Redirect }} RequestError
 *
 * @typedef {Setup | GoAway | Subscribe | SubscribeOk | Publish | PublishDone | Fetch | FetchOk | TrackStatus
 *   | PublishNamespace | NamespaceChange | SubscribePrefix | PublishBlocked | PublishStateNotify | RequestUpdate
 *   | RequestOk | RequestError} Message
 */

/** @type {Readonly<Record<Message["type"], bigint>>} */
const CODES = Object.freeze({
  REQUEST_UPDATE: 0x02n,
  SUBSCRIBE: 0x03n,
  SUBSCRIBE_OK: 0x04n,
  REQUEST_ERROR: 0x05n,
  PUBLISH_NAMESPACE: 0x06n,
  REQUEST_OK: 0x07n,
  NAMESPACE: 0x08n,
  PUBLISH_DONE: 0x0bn,
  TRACK_STATUS: 0x0dn,
  NAMESPACE_DONE: 0x0en,
  PUBLISH_BLOCKED: 0x0fn,
  GOAWAY: 0x10n,
  FETCH: 0x16n,
  FETCH_OK: 0x18n,
  PUBLISH: 0x1dn,
  PUBLISH_STATE_NOTIFY: 0x22n,
  SUBSCRIBE_NAMESPACE: 0x50n,
  SUBSCRIBE_TRACKS: 0x51n,
  SETUP: 0x2f00n,
});

/** The stream type of control streams, which is the type of SETUP. */
export const CONTROL_STREAM = CODES.SETUP;

/**
 * Encodes a message with its type and length.
 *
 * @param {Message} message
 * @param {Draft} draft
 * @returns {Uint8Array}
 */
export function encodeMessage(message, draft) {
  const fields = new Writer();
  writeFields(fields, message, draft);
  if (fields.out.length > MESSAGE_BYTES_MAX) throw new RangeError(`${message.type} is longer than a message may be`);
  const writer = new Writer();
  writer.varint(CODES[message.type]);
  writer.uint8(fields.out.length >> 8);
  writer.uint8(fields.out.length & 0xff);
  writer.bytes(fields.out);
  return writer.finish();
}

/** Reads messages from a stream, from pieces of any size. */
export class MessageReader {
  /** @param {Draft} draft */
  constructor(draft) {
    this.draft = draft;
    /** @type {Uint8Array} */
    this.pending = new Uint8Array(0);
  }

  /** @param {Uint8Array} bytes */
  push(bytes) {
    this.pending = concat(this.pending, bytes);
  }

  /** @returns {Message | undefined} the next message, if it is complete */
  poll() {
    const type = decodeVarint(this.pending);
    if (!type) return undefined;
    const [code, at] = type;
    const kind = Object.entries(CODES).find(([, known]) => known === code);
    const isKnown = kind && (kind[0] !== "PUBLISH_STATE_NOTIFY" || hasStateNotify(this.draft));
    if (!isKnown) throw new Violation("unknown message type");
    if (this.pending.length < at + 2) return undefined;
    const length = (this.pending[at] << 8) | this.pending[at + 1];
    const start = at + 2;
    if (this.pending.length < start + length) return undefined;
    const payload = this.pending.slice(start, start + length);
    this.pending = this.pending.subarray(start + length);
    return decodeFields(/** @type {Message["type"]} */ (kind[0]), payload, this.draft);
  }

  /** Handles the end of the stream. */
  fin() {
    if (this.pending.length > 0) throw new Violation("a stream ends within a message");
  }
}

/**
 * @param {Message["type"]} type
 * @param {Uint8Array} payload
 * @param {Draft} draft
 * @returns {Message}
 */
function decodeFields(type, payload, draft) {
  const cursor = new Cursor(payload);
  try {
    const message = readFields(type, cursor, draft);
    if (!cursor.isEmpty) throw new Violation("a message is longer than its fields");
    return message;
  } catch (error) {
    if (error instanceof Short) throw new Violation("a message is shorter than its fields");
    throw error;
  }
}

/**
 * @param {Message["type"]} type
 * @param {Cursor} cursor
 * @param {Draft} draft
 * @returns {Message}
 */
function readFields(type, cursor, draft) {
  switch (type) {
    case "SETUP":
      return readSetup(cursor, draft);
    case "GOAWAY":
      return readGoAway(cursor, draft);
    case "SUBSCRIBE":
    case "TRACK_STATUS":
      return { type, requestId: cursor.varint(), ...readFullTrackName(cursor), parameters: readParameters(cursor, type, draft) };
    case "SUBSCRIBE_OK":
      return {
        type,
        trackAlias: cursor.varint(),
        parameters: readParameters(cursor, type, draft),
        properties: readTrackProperties(cursor),
      };
    case "PUBLISH":
      return {
        type,
        requestId: cursor.varint(),
        ...readFullTrackName(cursor),
        trackAlias: cursor.varint(),
        parameters: readParameters(cursor, type, draft),
        properties: readTrackProperties(cursor),
      };
    case "PUBLISH_DONE":
      return readPublishDone(cursor, draft);
    case "FETCH":
      return { type, requestId: cursor.varint(), ...readFetch(cursor, draft) };
    case "FETCH_OK":
      return {
        type,
        endOfTrack: readFlag(cursor),
        end: readEnd(cursor, draft),
        parameters: readParameters(cursor, type, draft),
        properties: readTrackProperties(cursor),
      };
    case "PUBLISH_NAMESPACE":
      return { type, requestId: cursor.varint(), namespace: readNamespace(cursor), parameters: readParameters(cursor, type, draft) };
    case "NAMESPACE":
    case "NAMESPACE_DONE":
      return { type, suffix: readNamespace(cursor) };
    case "SUBSCRIBE_NAMESPACE":
    case "SUBSCRIBE_TRACKS":
      return { type, requestId: cursor.varint(), prefix: readNamespace(cursor), parameters: readParameters(cursor, type, draft) };
    case "PUBLISH_BLOCKED": {
      const { namespace, trackName } = readFullTrackName(cursor);
      return { type, suffix: namespace, trackName };
    }
    case "PUBLISH_STATE_NOTIFY":
      return { type, parameters: readParameters(cursor, type, draft) };
    case "REQUEST_UPDATE":
      return { type, requestId: cursor.varint(), parameters: readParameters(cursor, type, draft) };
    case "REQUEST_OK":
      return { type, parameters: readParameters(cursor, type, draft), properties: readTrackProperties(cursor) };
    case "REQUEST_ERROR":
      return readRequestError(cursor);
  }
}

/**
 * @param {Writer} writer
 * @param {Message} message
 * @param {Draft} draft
 */
function writeFields(writer, message, draft) {
  switch (message.type) {
    case "SETUP":
      return writeSetup(writer, message, draft);
    case "GOAWAY":
      writer.prefixed(utf8(message.newSessionUri));
      writer.varint(message.timeout ?? 0n);
      if (message.requestId !== undefined && goAwayHasRequestId(draft)) writer.varint(message.requestId);
      return;
    case "SUBSCRIBE":
    case "TRACK_STATUS":
      writer.varint(message.requestId);
      writeFullTrackName(writer, message);
      return writeParameters(writer, message.parameters, draft);
    case "SUBSCRIBE_OK":
      writer.varint(message.trackAlias);
      writeParameters(writer, message.parameters, draft);
      return writePairs(writer, message.properties);
    case "PUBLISH":
      writer.varint(message.requestId);
      writeFullTrackName(writer, message);
      writer.varint(message.trackAlias);
      writeParameters(writer, message.parameters, draft);
      return writePairs(writer, message.properties);
    case "PUBLISH_DONE":
      writer.varint(message.code);
      writer.varint(message.streamCount ?? streamCountUnknown(draft));
      return writeReason(writer, message.reason);
    case "FETCH":
      writer.varint(message.requestId);
      return writeFetch(writer, message, draft);
    case "FETCH_OK":
      writer.uint8(message.endOfTrack ? 1 : 0);
      writeEnd(writer, message.end, draft);
      writeParameters(writer, message.parameters, draft);
      return writePairs(writer, message.properties);
    case "PUBLISH_NAMESPACE":
      writer.varint(message.requestId);
      writeNamespace(writer, message.namespace);
      return writeParameters(writer, message.parameters, draft);
    case "NAMESPACE":
    case "NAMESPACE_DONE":
      return writeNamespace(writer, message.suffix);
    case "SUBSCRIBE_NAMESPACE":
    case "SUBSCRIBE_TRACKS":
      writer.varint(message.requestId);
      writeNamespace(writer, message.prefix);
      return writeParameters(writer, message.parameters, draft);
    case "PUBLISH_BLOCKED":
      return writeFullTrackName(writer, { namespace: message.suffix, trackName: message.trackName });
    case "PUBLISH_STATE_NOTIFY":
      return writeParameters(writer, message.parameters, draft);
    case "REQUEST_UPDATE":
      writer.varint(message.requestId);
      return writeParameters(writer, message.parameters, draft);
    case "REQUEST_OK":
      writeParameters(writer, message.parameters, draft);
      return writePairs(writer, message.properties);
    case "REQUEST_ERROR":
      writer.varint(message.code);
      writer.varint(message.retryAfter === undefined ? 0n : message.retryAfter + 1n);
      writeReason(writer, message.reason);
      if (message.redirect) {
        writer.prefixed(utf8(message.redirect.connectUri));
        writeFullTrackName(writer, message.redirect);
      }
  }
}

/**
 * Reads the options of SETUP. All drafts use the same numbers [moqt-18 §10.3.1].
 *
 * @param {Cursor} cursor
 * @param {Draft} draft
 * @returns {Setup}
 */
function readSetup(cursor, draft) {
  /** @type {Setup} */
  const setup = { type: "SETUP", authorizationTokens: [] };
  const once = (/** @type {keyof Setup} */ key) => {
    if (key in setup) throw new Violation("a setup option is repeated");
  };
  for (const option of readPairs(cursor.rest())) {
    const bytes = "bytes" in option ? option.bytes : new Uint8Array(0);
    switch (option.type) {
      case 0x01n:
        once("path");
        setup.path = readPath(bytes);
        break;
      case 0x03n: {
        if (setup.authorizationTokens.length === TOKENS_MAX) {
          throw new Violation("more authorization tokens in SETUP than this endpoint accepts", "INTERNAL_ERROR");
        }
        const token = readToken(bytes);
        if (token.aliasType === "DELETE" || token.aliasType === "USE_ALIAS") {
          throw new Violation("a token in SETUP refers to an alias");
        }
        setup.authorizationTokens.push(token);
        break;
      }
      case 0x04n:
        once("maxAuthTokenCacheSize");
        if ("int" in option) setup.maxAuthTokenCacheSize = option.int;
        break;
      case 0x05n:
        once("authority");
        setup.authority = readAuthority(bytes);
        break;
      case 0x06n:
        if (!setupHasLimits(draft)) break;
        once("maxFilterRanges");
        if ("int" in option) setup.maxFilterRanges = option.int;
        break;
      case 0x07n:
        once("implementation");
        setup.implementation = text(bytes);
        break;
      case 0x08n:
        if (!setupHasLimits(draft)) break;
        once("maxRequestUpdates");
        if ("int" in option) setup.maxRequestUpdates = option.int;
        break;
      default: // "Receivers MUST ignore unrecognized Setup Options", repeated or not.
    }
  }
  return setup;
}

/**
 * @param {Writer} writer
 * @param {Setup} setup
 * @param {Draft} draft
 */
function writeSetup(writer, setup, draft) {
  /** @type {Property[]} */
  const options = [];
  if (setup.path !== undefined) options.push({ type: 0x01n, bytes: utf8(setup.path) });
  for (const token of setup.authorizationTokens) {
    const inner = new Writer();
    writeToken(inner, token);
    options.push({ type: 0x03n, bytes: inner.finish() });
  }
  if (setup.maxAuthTokenCacheSize !== undefined) options.push({ type: 0x04n, int: setup.maxAuthTokenCacheSize });
  if (setup.authority !== undefined) options.push({ type: 0x05n, bytes: utf8(setup.authority) });
  const limits = setupHasLimits(draft) ? setup : undefined;
  if (limits?.maxFilterRanges !== undefined) options.push({ type: 0x06n, int: limits.maxFilterRanges });
  if (setup.implementation !== undefined) options.push({ type: 0x07n, bytes: utf8(setup.implementation) });
  if (limits?.maxRequestUpdates !== undefined) options.push({ type: 0x08n, int: limits.maxRequestUpdates });
  writePairs(writer, options);
}

const URI_TEXT = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
const PATH = new RegExp(`^(?:[/?](?:${URI_TEXT}|[/?])*)?$`);
const AUTHORITY = new RegExp(`^(?:(?:${URI_TEXT})*@)?(?:\\[(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+\\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)(?::[0-9]*)?$`);

/** @param {Uint8Array} bytes */
function readPath(bytes) {
  const path = text(bytes);
  if (!PATH.test(path)) throw new Violation("PATH is not the path of a URI", "MALFORMED_PATH");
  return path;
}

/** @param {Uint8Array} bytes */
function readAuthority(bytes) {
  const authority = text(bytes);
  if (!AUTHORITY.test(authority)) throw new Violation("AUTHORITY is not the authority of a URI", "MALFORMED_AUTHORITY");
  return authority;
}

/**
 * @param {Cursor} cursor
 * @param {Draft} draft
 * @returns {GoAway}
 */
function readGoAway(cursor, draft) {
  /** @type {GoAway} */
  const goAway = { type: "GOAWAY", newSessionUri: readUri(cursor) };
  const timeout = cursor.varint();
  if (timeout > 0n) goAway.timeout = timeout;
  if (!cursor.isEmpty && goAwayHasRequestId(draft)) goAway.requestId = cursor.varint();
  return goAway;
}

/**
 * @param {Cursor} cursor
 * @param {Draft} draft
 * @returns {PublishDone}
 */
function readPublishDone(cursor, draft) {
  const code = cursor.varint();
  const streamCount = cursor.varint();
  const reason = readReason(cursor);
  return { type: "PUBLISH_DONE", code, reason, ...(streamCount === streamCountUnknown(draft) ? {} : { streamCount }) };
}

/**
 * @param {Cursor} cursor
 * @returns {RequestError}
 */
function readRequestError(cursor) {
  const code = cursor.varint();
  const retry = cursor.varint();
  /** @type {RequestError} */
  const error = { type: "REQUEST_ERROR", code, reason: readReason(cursor) };
  if (retry > 0n) error.retryAfter = retry - 1n;
  if (code === REDIRECT) error.redirect = { connectUri: readUri(cursor), ...readFullTrackName(cursor) };
  return error;
}

/**
 * Reads a FETCH after its Request ID. Until draft-19 its kind is a field [moqt-18 §10.12]; later its range is a parameter
 * [moqt-22 §9.11].
 *
 * @param {Cursor} cursor
 * @param {Draft} draft
 * @returns {{ fetch: FetchKind, parameters: Parameters }}
 */
function readFetch(cursor, draft) {
  if (hasJoiningFetches(draft)) return { fetch: readFetchKind(cursor, draft), parameters: readParameters(cursor, "FETCH", draft) };
  const name = readFullTrackName(cursor);
  const { filter, ...parameters } = readParameters(cursor, "FETCH", draft);
  return { fetch: fetchOfFilter(name, filter ?? everything()), parameters };
}

/**
 * @param {Cursor} cursor
 * @param {Draft} draft
 * @returns {FetchKind}
 */
function readFetchKind(cursor, draft) {
  switch (cursor.varint()) {
    case 1n:
      return { type: "Standalone", ...readFullTrackName(cursor), start: readLocation(cursor), end: readEnd(cursor, draft) };
    case 2n:
      return { type: "RelativeJoining", requestId: cursor.varint(), groups: cursor.varint() };
    case 3n:
      return { type: "AbsoluteJoining", requestId: cursor.varint(), group: cursor.varint() };
    default:
      throw new Violation("unknown fetch type");
  }
}

/** The last location that there can be. */
const LAST = Object.freeze({ group: VARINT_MAX, object: VARINT_MAX });

/**
 * Returns the FETCH of the objects that pass a filter. No object that exists can pass one that begins with the next group or
 * object.
 *
 * @param {FullTrackName} name
 * @param {import("./parameter.js").Filter} filter
 * @returns {FetchKind}
 */
function fetchOfFilter(name, filter) {
  switch (filter.type) {
    case "Recent":
      return { type: "Recent", ...name, groups: filter.groups };
    case "AbsoluteStart":
      return { type: "Standalone", ...name, start: filter.start, end: { ...LAST } };
    case "AbsoluteRange":
      return { type: "Standalone", ...name, start: filter.start, end: filter.end };
    case "NextGroupStart":
    case "LargestObject":
      return { type: "Standalone", ...name, start: { ...LAST }, end: { ...LAST } };
  }
}

/**
 * @param {FetchKind} fetch
 * @returns {import("./parameter.js").Filter} the filter that its objects pass
 */
function filterOfFetch(fetch) {
  if (fetch.type === "Recent") return { type: "Recent", groups: fetch.groups };
  if (fetch.type !== "Standalone") throw new RangeError("the draft has no joining FETCH");
  const { start, end } = fetch;
  const isOpen = end.group === VARINT_MAX && end.object === VARINT_MAX;
  return isOpen ? { type: "AbsoluteStart", start } : { type: "AbsoluteRange", start, end };
}

/**
 * @param {Writer} writer
 * @param {Fetch} message
 * @param {Draft} draft
 */
function writeFetch(writer, { fetch, parameters }, draft) {
  if (hasJoiningFetches(draft)) {
    writeFetchKind(writer, fetch, draft);
    return writeParameters(writer, parameters, draft);
  }
  const filter = filterOfFetch(fetch);
  writeFullTrackName(writer, /** @type {FullTrackName} */ (fetch));
  writeParameters(writer, isEverything(filter) ? parameters : { ...parameters, filter }, draft);
}

/**
 * @param {Writer} writer
 * @param {FetchKind} fetch
 * @param {Draft} draft
 */
function writeFetchKind(writer, fetch, draft) {
  switch (fetch.type) {
    case "Standalone":
      writer.varint(1);
      writeFullTrackName(writer, fetch);
      writeLocation(writer, fetch.start);
      return writeEnd(writer, fetch.end, draft);
    case "RelativeJoining":
      writer.varint(2);
      writer.varint(fetch.requestId);
      return writer.varint(fetch.groups);
    case "AbsoluteJoining":
      writer.varint(3);
      writer.varint(fetch.requestId);
      return writer.varint(fetch.group);
    case "Recent":
      throw new RangeError("the draft has no FETCH of the most recent groups");
  }
}

/**
 * Reads the end of a range. Until draft-19, its object is encoded plus one, and 0 means the whole group
 * [moqt-18 §10.12.1].
 *
 * @param {Cursor} cursor
 * @param {Draft} draft
 * @returns {Location}
 */
function readEnd(cursor, draft) {
  const { group, object } = readLocation(cursor);
  if (!hasJoiningFetches(draft)) return { group, object };
  return { group, object: object === 0n ? VARINT_MAX : object - 1n };
}

/**
 * @param {Writer} writer
 * @param {Location} end
 * @param {Draft} draft
 */
function writeEnd(writer, { group, object }, draft) {
  if (!hasJoiningFetches(draft)) return writeLocation(writer, { group, object });
  writeLocation(writer, { group, object: object === VARINT_MAX ? 0n : object + 1n });
}

/** @param {Cursor} cursor */
function readFlag(cursor) {
  const flag = cursor.uint8();
  if (flag > 1) throw new Violation("End Of Track is neither 0 nor 1");
  return flag === 1;
}

/** @param {Cursor} cursor */
function readReason(cursor) {
  return text(cursor.take(cursor.length(REASON_BYTES_MAX, "a reason phrase is longer than 1024 bytes")));
}

/**
 * Writes a reason, truncated at a character boundary if it is too long.
 *
 * @param {Writer} writer
 * @param {string} reason
 */
function writeReason(writer, reason) {
  let kept = utf8(reason);
  if (kept.length > REASON_BYTES_MAX) {
    let end = REASON_BYTES_MAX;
    while ((kept[end] & 0xc0) === 0x80) end -= 1;
    kept = kept.subarray(0, end);
  }
  writer.prefixed(kept);
}

/** @param {Cursor} cursor */
function readUri(cursor) {
  const uri = strictText(cursor.take(cursor.length(URI_BYTES_MAX, "a URI is longer than 8192 bytes")));
  if (uri === undefined) throw new Violation("a URI is not UTF-8");
  return uri;
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
