/**
 * The contents of data streams and datagrams: headers of subgroups, objects, fetches [moqt-18 §11].
 *
 * {@link SubgroupReader} and {@link FetchReader} read streams. They return items as they become complete, and payloads
 * in the pieces in which they arrive.
 */

import { Cursor, Writer, concat } from "./cursor.js";
import { endOfRange } from "./draft.js";
import { Short, Violation } from "./error.js";
import { CONTROL_STREAM } from "./message.js";
import { readProperties, writeProperties } from "./property.js";
import { VARINT_MAX, decode as decodeVarint } from "./varint.js";

/** The most bytes of an object before its payload. */
export const HEADER_BYTES_MAX = 64 * 1024;

/**
 * @typedef {import("./property.js").Property} Property
 * @typedef {"normal" | "end_of_group" | "end_of_track"} Status
 *
 * @typedef {object} SubgroupHeader
 * @property {bigint} trackAlias
 * @property {bigint} group
 * @property {"zero" | "first_object" | { explicit: bigint }} subgroup
 * @property {bigint} [priority] 0 to 255; if absent, that of the track
 * @property {boolean} hasProperties
 * @property {boolean} endOfGroup whether the subgroup contains the largest object of its group
 * @property {boolean} firstObject whether the stream begins with the first object of the subgroup
 *
 * @typedef {object} ObjectHeader
 * @property {bigint} id
 * @property {Status} status
 * @property {bigint} payloadLength
 * @property {Property[]} properties
 *
 * @typedef {object} FetchObject
 * @property {bigint} group
 * @property {bigint} [subgroup] absent in datagrams
 * @property {bigint} object
 * @property {bigint} priority
 * @property {bigint} payloadLength
 * @property {Property[]} properties
 *
 * @typedef {{ reason: "non_existent" | "unknown" | "timed_out", group: bigint, object: bigint }} EndOfRange
 *
 * @typedef {object} Datagram
 * @property {bigint} trackAlias
 * @property {bigint} group
 * @property {bigint} object
 * @property {bigint} [priority]
 * @property {boolean} endOfGroup
 * @property {Status} status
 * @property {Property[]} properties
 * @property {Uint8Array} payload
 */

/**
 * The content of a unidirectional stream.
 *
 * @typedef {"control" | "subgroup" | "fetch" | "padding"} StreamKind
 */

const FETCH_STREAM = 0x05n;
const PADDING_STREAM = 0x132b3e28n;
const PADDING_DATAGRAM = 0x132b3e29n;
const PROPERTIES = 0x01;
const ID_MODE = 0x06;
const ID_FIRST_OBJECT = 0x02;
const ID_EXPLICIT = 0x04;
const END_OF_GROUP = 0x08;
const SUBGROUP_FORM = 0x10;
const DEFAULT_PRIORITY = 0x20;
const FIRST_OBJECT = 0x40;

/**
 * Returns the content of a stream by its first bytes; undefined if there are too few.
 *
 * @param {Uint8Array} start
 * @returns {StreamKind | undefined}
 */
export function streamKind(start) {
  const type = decodeVarint(start);
  if (!type) return undefined;
  const kind = kindOf(type[0]);
  if (!kind) throw new Violation("unknown stream type");
  return kind;
}

/**
 * @param {bigint} type
 * @returns {StreamKind | undefined}
 */
function kindOf(type) {
  if (type === CONTROL_STREAM) return "control";
  if (type === FETCH_STREAM) return "fetch";
  if (type === PADDING_STREAM) return "padding";
  const flags = type < 0x80n ? Number(type) : 0;
  return (flags & SUBGROUP_FORM) !== 0 && (flags & ID_MODE) !== ID_MODE ? "subgroup" : undefined;
}

/**
 * Buffers bytes until an item is complete.
 */
class Pieces {
  constructor() {
    /** @type {Uint8Array} */
    this.pending = new Uint8Array(0);
    /** Remaining bytes of a payload. */
    this.missing = 0n;
  }

  /** @param {Uint8Array} bytes */
  push(bytes) {
    this.pending = concat(this.pending, bytes);
  }

  /** @returns {Uint8Array | undefined} the available part of a payload */
  payload() {
    if (this.missing === 0n || this.pending.length === 0) return undefined;
    const length = this.missing < BigInt(this.pending.length) ? Number(this.missing) : this.pending.length;
    const piece = this.pending.subarray(0, length);
    this.pending = this.pending.subarray(length);
    this.missing -= BigInt(length);
    return piece;
  }

  /**
   * Reads fields if all of them are available.
   *
   * @template T
   * @param {(cursor: Cursor) => T} fields
   * @returns {T | undefined}
   */
  read(fields) {
    const cursor = new Cursor(this.pending);
    try {
      const value = fields(cursor);
      this.pending = this.pending.subarray(cursor.at);
      return value;
    } catch (error) {
      if (!(error instanceof Short)) throw error;
      if (this.pending.length > HEADER_BYTES_MAX) {
        throw new Violation("the header of an object is too long", "INTERNAL_ERROR");
      }
      return undefined;
    }
  }

  /** Handles the end of the stream. */
  fin() {
    if (this.pending.length > 0 || this.missing > 0n) throw new Violation("a stream ends within an object");
  }
}

/**
 * Reads a subgroup stream.
 *
 * @typedef {{ header: SubgroupHeader } | { object: ObjectHeader } | { payload: Uint8Array }} SubgroupItem
 */
export class SubgroupReader {
  constructor() {
    this.pieces = new Pieces();
    /** @type {SubgroupHeader | undefined} */
    this.header = undefined;
    /** @type {bigint | undefined} */
    this.previous = undefined;
  }

  /** @param {Uint8Array} bytes */
  push(bytes) {
    this.pieces.push(bytes);
  }

  /** @returns {SubgroupItem | undefined} the next item, if it is available */
  poll() {
    const { pieces } = this;
    if (pieces.missing > 0n) {
      const payload = pieces.payload();
      return payload && { payload };
    }
    if (!this.header) {
      const header = pieces.read(readSubgroupHeader);
      this.header = header;
      return header && { header };
    }
    if (pieces.pending.length === 0) return undefined;
    const { hasProperties } = this.header;
    const object = pieces.read((cursor) => readObject(cursor, this.previous, hasProperties));
    if (!object) return undefined;
    this.previous = object.id;
    pieces.missing = object.payloadLength;
    return { object };
  }

  /** Handles the end of the stream. */
  fin() {
    if (!this.header) throw new Violation("a stream ends within its header");
    this.pieces.fin();
  }
}

/**
 * @param {Cursor} cursor
 * @returns {SubgroupHeader}
 */
function readSubgroupHeader(cursor) {
  const type = cursor.varint();
  if (kindOf(type) !== "subgroup") throw new Violation("the stream is not a subgroup stream");
  const flags = Number(type);
  const trackAlias = cursor.varint();
  const group = cursor.varint();
  const mode = flags & ID_MODE;
  const subgroup = mode === 0 ? "zero" : mode === ID_FIRST_OBJECT ? "first_object" : { explicit: cursor.varint() };
  return {
    trackAlias,
    group,
    subgroup,
    ...((flags & DEFAULT_PRIORITY) === 0 ? { priority: BigInt(cursor.uint8()) } : {}),
    hasProperties: (flags & PROPERTIES) !== 0,
    endOfGroup: (flags & END_OF_GROUP) !== 0,
    firstObject: (flags & FIRST_OBJECT) !== 0,
  };
}

/**
 * @param {Writer} writer
 * @param {SubgroupHeader} header
 */
export function writeSubgroupHeader(writer, header) {
  const { subgroup, priority } = header;
  let flags = SUBGROUP_FORM;
  if (header.hasProperties) flags |= PROPERTIES;
  if (header.endOfGroup) flags |= END_OF_GROUP;
  if (header.firstObject) flags |= FIRST_OBJECT;
  if (priority === undefined) flags |= DEFAULT_PRIORITY;
  if (subgroup === "first_object") flags |= ID_FIRST_OBJECT;
  if (typeof subgroup === "object") flags |= ID_EXPLICIT;
  writer.varint(flags);
  writer.varint(header.trackAlias);
  writer.varint(header.group);
  if (typeof subgroup === "object") writer.varint(subgroup.explicit);
  if (priority !== undefined) writer.uint8(Number(priority));
}

/**
 * @param {Cursor} cursor
 * @param {bigint | undefined} previous the ID of the previous object on the stream
 * @param {boolean} hasProperties
 * @returns {ObjectHeader}
 */
function readObject(cursor, previous, hasProperties) {
  const delta = cursor.varint();
  const id = previous === undefined ? delta : previous + 1n + delta;
  if (id > VARINT_MAX) throw new Violation("an object ID is above 2^64 - 1");
  const properties = hasProperties ? readProperties(cursor, HEADER_BYTES_MAX) : [];
  const payloadLength = cursor.varint();
  const status = payloadLength === 0n ? readStatus(cursor) : "normal";
  if (status !== "normal" && properties.length > 0) throw new Violation(PROPERTIES_WITH_STATUS);
  return { id, status, payloadLength, properties };
}

/**
 * Writes the fields of an object that precede its payload.
 *
 * @param {Writer} writer
 * @param {ObjectHeader} object
 * @param {bigint | undefined} previous the ID of the previous object on the stream
 * @param {boolean} hasProperties as in the header of the stream
 */
export function writeObject(writer, object, previous, hasProperties) {
  writer.varint(previous === undefined ? object.id : object.id - previous - 1n);
  if (hasProperties) writeProperties(writer, object.properties);
  writer.varint(object.payloadLength);
  if (object.payloadLength === 0n) writer.varint(STATUS_CODES[object.status]);
}

/** @type {Readonly<Record<Status, number>>} */
const STATUS_CODES = Object.freeze({ normal: 0x0, end_of_group: 0x3, end_of_track: 0x4 });

/**
 * @param {Cursor} cursor
 * @returns {Status}
 */
function readStatus(cursor) {
  switch (cursor.varint()) {
    case 0x0n:
      return "normal";
    case 0x3n:
      return "end_of_group";
    case 0x4n:
      return "end_of_track";
    default:
      throw new Violation("unknown object status");
  }
}

/**
 * Decodes a datagram.
 *
 * @param {Uint8Array} bytes
 * @returns {Datagram | "padding"}
 */
export function decodeDatagram(bytes) {
  const cursor = new Cursor(bytes);
  try {
    const type = cursor.varint();
    if (type === PADDING_DATAGRAM) return "padding";
    const flags = type < 0x30n ? Number(type) : 0xff;
    const hasStatus = (flags & 0x20) !== 0;
    const endOfGroup = (flags & 0x02) !== 0;
    if ((flags & ~0x2f) !== 0 || (hasStatus && endOfGroup)) throw new Violation("unknown datagram type");
    const trackAlias = cursor.varint();
    const group = cursor.varint();
    const object = (flags & 0x04) === 0 ? cursor.varint() : 0n;
    const priority = (flags & 0x08) === 0 ? { priority: BigInt(cursor.uint8()) } : {};
    const properties = (flags & PROPERTIES) !== 0 ? readProperties(cursor, HEADER_BYTES_MAX) : [];
    if ((flags & PROPERTIES) !== 0 && properties.length === 0) throw new Violation("a datagram announces properties and has none");
    const status = hasStatus ? readStatus(cursor) : "normal";
    if (status !== "normal" && properties.length > 0) throw new Violation(PROPERTIES_WITH_STATUS);
    if (hasStatus && !cursor.isEmpty) throw new Violation("a datagram with a status has a payload");
    return { trackAlias, group, object, ...priority, endOfGroup, status, properties, payload: cursor.rest() };
  } catch (error) {
    if (error instanceof Short) throw new Violation("a datagram is shorter than its fields");
    throw error;
  }
}

/**
 * Encodes a datagram.
 *
 * @param {Datagram} datagram
 * @returns {Uint8Array}
 */
export function encodeDatagram(datagram) {
  const { object, priority, properties, payload, status } = datagram;
  const hasStatus = status !== "normal" || (payload.length === 0 && !datagram.endOfGroup);
  let flags = 0;
  if (properties.length > 0) flags |= PROPERTIES;
  if (datagram.endOfGroup) flags |= 0x02;
  if (object === 0n) flags |= 0x04;
  if (priority === undefined) flags |= 0x08;
  if (hasStatus) flags |= 0x20;
  const writer = new Writer();
  writer.varint(flags);
  writer.varint(datagram.trackAlias);
  writer.varint(datagram.group);
  if (object !== 0n) writer.varint(object);
  if (priority !== undefined) writer.uint8(Number(priority));
  if (properties.length > 0) writeProperties(writer, properties);
  if (hasStatus) writer.varint(STATUS_CODES[status]);
  return concat(writer.finish(), payload);
}

/**
 * Reads a fetch stream [moqt-18 §11.4.4].
 *
 * @typedef {{ header: { requestId: bigint } } | { object: FetchObject } | { endOfRange: EndOfRange }
 *   | { payload: Uint8Array }} FetchItem
 */
export class FetchReader {
  /**
   * @param {"ascending" | "descending"} order
   * @param {import("./draft.js").Draft} draft
   */
  constructor(order, draft) {
    this.pieces = new Pieces();
    this.draft = draft;
    this.order = order;
    this.hasHeader = false;
    /** @type {{ group: bigint, object: bigint } | undefined} */
    this.previous = undefined;
    /** @type {bigint | undefined} */
    this.subgroup = undefined;
    /** @type {bigint | undefined} */
    this.priority = undefined;
  }

  /** @param {Uint8Array} bytes */
  push(bytes) {
    this.pieces.push(bytes);
  }

  /** @returns {FetchItem | undefined} the next item, if it is available */
  poll() {
    const { pieces } = this;
    if (pieces.missing > 0n) {
      const payload = pieces.payload();
      return payload && { payload };
    }
    if (!this.hasHeader) {
      const header = pieces.read((cursor) => {
        if (cursor.varint() !== FETCH_STREAM) throw new Violation("the stream is not a fetch stream");
        return { requestId: cursor.varint() };
      });
      this.hasHeader = header !== undefined;
      return header && { header };
    }
    if (pieces.pending.length === 0) return undefined;
    const item = pieces.read((cursor) => this.#readEntry(cursor));
    if (!item) return undefined;
    if ("object" in item) {
      this.previous = { group: item.object.group, object: item.object.object };
      this.subgroup = item.object.subgroup;
      this.priority = item.object.priority;
      pieces.missing = item.object.payloadLength;
    } else {
      this.previous = { group: item.endOfRange.group, object: item.endOfRange.object };
    }
    return item;
  }

  /** Handles the end of the stream. */
  fin() {
    if (!this.hasHeader) throw new Violation("a stream ends within its header");
    this.pieces.fin();
  }

  /**
   * @param {Cursor} cursor
   * @returns {{ object: FetchObject } | { endOfRange: EndOfRange }}
   */
  #readEntry(cursor) {
    const code = cursor.varint();
    const reason = endOfRange(this.draft, code);
    if (reason) return { endOfRange: { reason, group: cursor.varint(), object: cursor.varint() } };
    if (code >= 128n) throw new Violation("unknown serialization flags");
    const flags = Number(code);
    const group = this.#readGroup(cursor, flags);
    const mode = flags & 0x03;
    const isDatagram = (flags & 0x40) !== 0;
    const subgroup = isDatagram ? undefined : this.#readSubgroup(cursor, mode);
    const object = this.#readObjectId(cursor, flags);
    const priority = (flags & 0x10) !== 0 ? BigInt(cursor.uint8()) : this.priority;
    if (priority === undefined) throw new Violation("an object takes its priority from a prior object that does not exist");
    const properties = (flags & 0x20) !== 0 ? readProperties(cursor, HEADER_BYTES_MAX) : [];
    const payloadLength = cursor.varint();
    return { object: { group, ...(subgroup === undefined ? {} : { subgroup }), object, priority, payloadLength, properties } };
  }

  /**
   * @param {Cursor} cursor
   * @param {number} flags
   */
  #readGroup(cursor, flags) {
    if ((flags & 0x08) === 0) {
      if (!this.previous) throw new Violation("the first object of a fetch has no group");
      return this.previous.group;
    }
    const delta = cursor.varint();
    if (!this.previous) return delta;
    const step = delta + 1n;
    const group = this.order === "ascending" ? this.previous.group + step : this.previous.group - step;
    if (group < 0n || group > VARINT_MAX) throw new Violation("a group of a fetch is out of range");
    return group;
  }

  /**
   * @param {Cursor} cursor
   * @param {number} mode
   */
  #readSubgroup(cursor, mode) {
    if (mode === 0) return 0n;
    if (mode === 3) return cursor.varint();
    if (this.subgroup === undefined) throw new Violation("an object takes its subgroup from a prior object that does not exist");
    const subgroup = this.subgroup + (mode === 2 ? 1n : 0n);
    if (subgroup > VARINT_MAX) throw new Violation("a subgroup of a fetch is out of range");
    return subgroup;
  }

  /**
   * @param {Cursor} cursor
   * @param {number} flags
   */
  #readObjectId(cursor, flags) {
    const hasGroup = (flags & 0x08) !== 0;
    const delta = (flags & 0x04) !== 0 ? cursor.varint() : undefined;
    if (hasGroup && delta !== undefined) return delta;
    if (!this.previous) throw new Violation("the first object of a fetch has no ID");
    const object = this.previous.object + (delta ?? 1n);
    if (object > VARINT_MAX) throw new Violation("an object ID is above 2^64 - 1");
    return object;
  }
}

const PROPERTIES_WITH_STATUS = "an object without the status Normal has properties";
