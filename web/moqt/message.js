/**
 * Control messages, and their reader [moqt-18 §10] [moqt-22 §9].
 */

import { Cursor, Writer, concat } from "./cursor.js";
import { hasStateNotify } from "./draft.js";
import { Short, Violation } from "./error.js";
import { readGoAway, readPublishDone, readRequestError, writeGoAway, writePublishDone, writeRequestError } from "./message/ending.js";
import { readEnd, readFetch, writeEnd, writeFetch } from "./message/fetch.js";
import { readSetup, writeSetup } from "./message/setup.js";
import { readFullTrackName, readNamespace, writeFullTrackName, writeNamespace } from "./name.js";
import { readParameters, writeParameters } from "./parameter.js";
import { readTrackProperties, writePairs } from "./property.js";
import { decode as decodeVarint } from "./varint.js";

/** The most bytes of a message after its length. */
export const MESSAGE_BYTES_MAX = 65535;

/**
 * @typedef {import("./draft.js").Draft} Draft
 * @typedef {import("./name.js").Namespace} Namespace
 * @typedef {import("./name.js").FullTrackName} FullTrackName
 * @typedef {import("./parameter.js").Parameters} Parameters
 * @typedef {import("./parameter.js").Location} Location
 * @typedef {import("./property.js").Property} Property
 *
 * @typedef {import("./message/ending.js").GoAway} GoAway
 * @typedef {import("./message/ending.js").PublishDone} PublishDone
 * @typedef {import("./message/ending.js").RequestError} RequestError
 * @typedef {import("./message/fetch.js").Fetch} Fetch
 * @typedef {import("./message/setup.js").Setup} Setup
 *
 * @typedef {FullTrackName & { type: "SUBSCRIBE", requestId: bigint, parameters: Parameters }} Subscribe
 * @typedef {{ type: "SUBSCRIBE_OK", trackAlias: bigint, parameters: Parameters, properties: Property[] }} SubscribeOk
 * @typedef {FullTrackName & { type: "PUBLISH", requestId: bigint, trackAlias: bigint, parameters: Parameters,
 *   properties: Property[] }} Publish
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
      return writeGoAway(writer, message, draft);
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
      return writePublishDone(writer, message, draft);
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
      return writeRequestError(writer, message);
  }
}

/** @param {Cursor} cursor */
function readFlag(cursor) {
  const flag = cursor.uint8();
  if (flag > 1) throw new Violation("End Of Track is neither 0 nor 1");
  return flag === 1;
}
