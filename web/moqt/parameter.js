/**
 * Message parameters of requests and their responses, for the peer only [moqt-18 §10.2] [moqt-22 §9.20].
 */

import { Cursor, Writer } from "./cursor.js";
import { filterForm } from "./draft.js";
import { Short, Violation } from "./error.js";
import { readNamespace, writeNamespace } from "./name.js";
import { VARINT_MAX } from "./varint.js";

/** The most authorization tokens in one message. */
export const TOKENS_MAX = 64;
/** The most range filters in one message. */
const RANGE_FILTERS_MAX = 64;
/** The parameters that may occur several times, and how often.
 * @type {Readonly<Record<string, number>>} */
const MAY_REPEAT = Object.freeze({ authorizationTokens: TOKENS_MAX, rangeFilters: RANGE_FILTERS_MAX });

/**
 * @typedef {import("./draft.js").Draft} Draft
 * @typedef {{ group: bigint, object: bigint }} Location
 *
 * @typedef {{ type: "NextGroupStart" } | { type: "LargestObject" } | { type: "Recent", groups: bigint }
 *   | { type: "AbsoluteStart", start: Location }
 *   | { type: "AbsoluteRange", start: Location, end: Location }} Filter which objects a subscription covers.
 *   `Recent` begins with the group that is so many before the largest one, from draft-20 on. An end is inclusive
 *
 * @typedef {{ aliasType: "DELETE", alias: bigint } | { aliasType: "USE_ALIAS", alias: bigint }
 *   | { aliasType: "REGISTER", alias: bigint, tokenType: bigint, value: Uint8Array }
 *   | { aliasType: "USE_VALUE", tokenType: bigint, value: Uint8Array }} Token
 *
 * @typedef {"Subgroup" | "ObjectId" | "Priority" | "ObjectProperty" | "TrackProperty"} RangeFilterKind
 * @typedef {{ kind: RangeFilterKind, value: Uint8Array }} RangeFilter a condition, encoded: this endpoint announces that it
 *   accepts none
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
 * @property {Parameters} [fill] requests past objects of a subscription, from draft-20 on
 * @property {RangeFilter[]} [rangeFilters] from draft-19 on
 * @property {bigint} [newGroupRequest]
 * @property {Uint8Array[]} [trackNamespacePrefix]
 * @property {boolean} [includeProperties] whether the answer is to have the properties of the track, from draft-20 on
 */

/**
 * The messages that parameters appear in.
 *
 * @typedef {"SUBSCRIBE" | "SUBSCRIBE_OK" | "PUBLISH" | "FETCH" | "FETCH_OK" | "TRACK_STATUS" | "PUBLISH_NAMESPACE"
 *   | "SUBSCRIBE_NAMESPACE" | "SUBSCRIBE_TRACKS" | "REQUEST_UPDATE" | "REQUEST_OK" | "PUBLISH_STATE_NOTIFY"
 *   | "FILL"} Scope a fill is a parameter with parameters
 */

/**
 * @template T
 * @typedef {object} Row one parameter
 * @property {bigint} code
 * @property {keyof Parameters} key
 * @property {RangeFilterKind} [kind] the kind of range filter
 * @property {[string, string, string]} scopes messages that may contain it: in draft-18, in draft-19, and later
 * @property {(cursor: Cursor, draft: Draft) => T} read
 * @property {(writer: Writer, value: T, draft: Draft) => void} write
 */

const ANY_REQUEST = "SUBSCRIBE PUBLISH FETCH TRACK_STATUS PUBLISH_NAMESPACE SUBSCRIBE_NAMESPACE SUBSCRIBE_TRACKS REQUEST_UPDATE";

/** Returns the messages that may contain a range filter of objects: in draft-18, in draft-19, and later. */
function rangeScopes() {
  return /** @type {Row<any>["scopes"]} */ ([
    "",
    "SUBSCRIBE SUBSCRIBE_TRACKS FETCH REQUEST_OK REQUEST_UPDATE",
    "SUBSCRIBE SUBSCRIBE_TRACKS FETCH REQUEST_UPDATE FILL",
  ]);
}

/** @type {Row<any>[]} in ascending order of code */
const ROWS = [
  {
    code: 0x02n,
    key: "objectDeliveryTimeout",
    scopes: [
      "SUBSCRIBE REQUEST_OK REQUEST_UPDATE",
      "SUBSCRIBE SUBSCRIBE_TRACKS REQUEST_OK REQUEST_UPDATE",
      "SUBSCRIBE SUBSCRIBE_TRACKS PUBLISH REQUEST_UPDATE",
    ],
    ...varint(),
  },
  {
    code: 0x03n,
    key: "authorizationTokens",
    scopes: [ANY_REQUEST, ANY_REQUEST, ANY_REQUEST],
    read: readPrefixedToken,
    write: writePrefixedToken,
  },
  { code: 0x04n, key: "rendezvousTimeout", scopes: ["SUBSCRIBE", "SUBSCRIBE SUBSCRIBE_TRACKS", "SUBSCRIBE SUBSCRIBE_TRACKS"], ...varint() },
  {
    code: 0x06n,
    key: "subgroupDeliveryTimeout",
    scopes: [
      "SUBSCRIBE REQUEST_OK REQUEST_UPDATE",
      "SUBSCRIBE SUBSCRIBE_TRACKS REQUEST_OK REQUEST_UPDATE",
      "SUBSCRIBE SUBSCRIBE_TRACKS PUBLISH REQUEST_UPDATE",
    ],
    ...varint(),
  },
  {
    code: 0x08n,
    key: "expires",
    scopes: ["SUBSCRIBE_OK PUBLISH REQUEST_OK", "SUBSCRIBE_OK PUBLISH REQUEST_OK", "SUBSCRIBE_OK PUBLISH REQUEST_OK"],
    ...varint(),
  },
  {
    code: 0x09n,
    key: "largestObject",
    scopes: [
      "SUBSCRIBE_OK PUBLISH REQUEST_OK", "SUBSCRIBE_OK PUBLISH REQUEST_OK", "SUBSCRIBE_OK PUBLISH REQUEST_OK PUBLISH_STATE_NOTIFY",
    ],
    read: readLocation,
    write: writeLocation,
  },
  { code: 0x0an, key: "fillTimeout", scopes: ["FETCH", "FETCH", "FETCH FILL"], ...varint() },
  {
    code: 0x10n,
    key: "forward",
    scopes: [
      "SUBSCRIBE REQUEST_UPDATE PUBLISH REQUEST_OK SUBSCRIBE_TRACKS",
      "SUBSCRIBE REQUEST_UPDATE PUBLISH REQUEST_OK SUBSCRIBE_TRACKS",
      "SUBSCRIBE REQUEST_UPDATE PUBLISH SUBSCRIBE_TRACKS PUBLISH_STATE_NOTIFY",
    ],
    ...flag("FORWARD is neither 0 nor 1"),
  },
  {
    code: 0x20n,
    key: "subscriberPriority",
    scopes: [
      "SUBSCRIBE FETCH REQUEST_UPDATE REQUEST_OK",
      "SUBSCRIBE SUBSCRIBE_TRACKS FETCH REQUEST_UPDATE REQUEST_OK",
      "SUBSCRIBE SUBSCRIBE_TRACKS PUBLISH FETCH REQUEST_UPDATE FILL",
    ],
    read: (cursor) => BigInt(cursor.uint8()),
    write: (writer, value) => writer.uint8(Number(value)),
  },
  {
    code: 0x21n,
    key: "filter",
    scopes: [
      "SUBSCRIBE REQUEST_OK REQUEST_UPDATE",
      "SUBSCRIBE SUBSCRIBE_TRACKS REQUEST_OK REQUEST_UPDATE",
      "SUBSCRIBE PUBLISH FETCH REQUEST_UPDATE SUBSCRIBE_TRACKS PUBLISH_STATE_NOTIFY FILL",
    ],
    read: readFilter,
    write: writeFilter,
  },
  {
    code: 0x22n,
    key: "groupOrder",
    scopes: ["SUBSCRIBE REQUEST_OK FETCH", "SUBSCRIBE SUBSCRIBE_TRACKS PUBLISH FETCH", "SUBSCRIBE PUBLISH FETCH SUBSCRIBE_TRACKS FILL"],
    read: (cursor) => oneOf(cursor.uint8(), ["ascending", "descending"], 1, "GROUP_ORDER is neither 1 nor 2"),
    write: (writer, value) => writer.uint8(value === "descending" ? 2 : 1),
  },
  { code: 0x23n, key: "fill", scopes: ["", "", "SUBSCRIBE REQUEST_UPDATE SUBSCRIBE_TRACKS"], read: readFill, write: writeFill },
  { code: 0x25n, key: "rangeFilters", kind: "Subgroup", scopes: rangeScopes(), ...rangeFilter("Subgroup") },
  { code: 0x26n, key: "rangeFilters", kind: "ObjectId", scopes: rangeScopes(), ...rangeFilter("ObjectId") },
  { code: 0x27n, key: "rangeFilters", kind: "Priority", scopes: rangeScopes(), ...rangeFilter("Priority") },
  { code: 0x28n, key: "rangeFilters", kind: "ObjectProperty", scopes: rangeScopes(), ...rangeFilter("ObjectProperty") },
  {
    code: 0x29n,
    key: "rangeFilters",
    kind: "TrackProperty",
    scopes: ["", "SUBSCRIBE_TRACKS REQUEST_UPDATE", "SUBSCRIBE_TRACKS REQUEST_UPDATE"],
    ...rangeFilter("TrackProperty"),
  },
  {
    code: 0x32n,
    key: "newGroupRequest",
    scopes: [
      "SUBSCRIBE REQUEST_OK REQUEST_UPDATE",
      "SUBSCRIBE SUBSCRIBE_TRACKS REQUEST_OK REQUEST_UPDATE",
      "SUBSCRIBE SUBSCRIBE_TRACKS REQUEST_UPDATE",
    ],
    ...varint(),
  },
  {
    code: 0x34n,
    key: "trackNamespacePrefix",
    scopes: ["REQUEST_UPDATE", "REQUEST_UPDATE", "REQUEST_UPDATE"],
    read: readNamespace,
    write: writeNamespace,
  },
  {
    code: 0x35n,
    key: "includeProperties",
    scopes: ["", "", "SUBSCRIBE TRACK_STATUS FETCH SUBSCRIBE_TRACKS"],
    ...flag("INCLUDE_PROPERTIES is neither 0 nor 1"),
  },
];

/**
 * Returns the messages that may contain a parameter.
 *
 * @param {Row<any>} row
 * @param {Draft} draft
 * @returns {string[]} empty if the draft does not have the parameter
 */
function scopesIn({ scopes }, draft) {
  const [of18, of19, later] = scopes;
  return (draft === 18 ? of18 : draft === 19 ? of19 : later).split(" ").filter(Boolean);
}

/**
 * Reads the number of parameters, and the parameters.
 *
 * @param {Cursor} cursor
 * @param {Scope} scope
 * @param {Draft} draft
 * @returns {Parameters}
 */
export function readParameters(cursor, scope, draft) {
  /** @type {Record<string, any>} */
  const parameters = {};
  let code = 0n;
  const count = cursor.varint();
  for (let i = 0n; i < count; i++) {
    code += cursor.varint();
    if (code > VARINT_MAX) throw new Violation("the type of a parameter is above 2^64 - 1");
    const row = ROWS.find((known) => known.code === code);
    const scopes = row ? scopesIn(row, draft) : [];
    if (!row || scopes.length === 0) throw new Violation("unknown parameter");
    if (!scopes.includes(scope)) throw new Violation("a parameter is not permitted in this message");
    const most = MAY_REPEAT[row.key];
    if (most === undefined) {
      if (row.key in parameters) throw new Violation("a parameter is repeated");
      parameters[row.key] = row.read(cursor, draft);
      continue;
    }
    const list = (parameters[row.key] ??= []);
    if (list.length === most) {
      throw new Violation("more tokens or range filters in a message than this endpoint accepts", "INTERNAL_ERROR");
    }
    list.push(row.read(cursor, draft));
  }
  return parameters;
}

/**
 * Writes the number of parameters, and the parameters. Those that the draft does not have are left out.
 *
 * @param {Writer} writer
 * @param {Parameters} parameters
 * @param {Draft} draft
 */
export function writeParameters(writer, parameters, draft) {
  /** @type {[Row<any>, unknown][]} */
  const values = ROWS.flatMap((row) => {
    const value = parameters[row.key];
    if (value === undefined || scopesIn(row, draft).length === 0) return [];
    const all = /** @type {any[]} */ (row.key in MAY_REPEAT ? value : [value]);
    const ofRow = all.filter((one) => row.kind === undefined || one.kind === row.kind);
    return ofRow.map((one) => /** @type {[Row<any>, unknown]} */ ([row, one]));
  });
  writer.varint(values.length);
  let previous = 0n;
  for (const [row, value] of values) {
    writer.varint(row.code - previous);
    previous = row.code;
    row.write(writer, value, draft);
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
 * Reads a location filter.
 *
 * @param {Cursor} outer
 * @param {Draft} draft
 * @returns {Filter}
 */
function readFilter(outer, draft) {
  const form = filterForm(draft);
  if (form === "typed") return readTypedFilter(outer);
  const cursor = new Cursor(outer.take(outer.varint()));
  const filter = form === "counted" ? readCountedFilter(cursor) : readSubscriptionFilter(cursor);
  if (!cursor.isEmpty) throw new Violation("a location filter is followed by more bytes");
  return filter;
}

/**
 * Reads a filter of drafts 18 and 19 after its length [moqt-18 §5.1.2].
 *
 * @param {Cursor} cursor
 * @returns {Filter}
 */
function readSubscriptionFilter(cursor) {
  switch (cursor.varint()) {
    case 1n:
      return { type: "NextGroupStart" };
    case 2n:
      return { type: "LargestObject" };
    case 3n:
      return { type: "AbsoluteStart", start: readLocation(cursor) };
    case 4n:
      return range(readLocation(cursor), cursor.varint(), VARINT_MAX);
    default:
      throw new Violation("a subscription filter has an unknown type");
  }
}

/**
 * Reads up to four fields. A lone group counts back from the next group, and twice 0 means the next object
 * [moqt-21 §9.20.10].
 *
 * @param {Cursor} cursor
 * @returns {Filter}
 */
function readCountedFilter(cursor) {
  if (cursor.isEmpty) return everything();
  const group = cursor.varint();
  if (cursor.isEmpty) return backFromNextGroup(group);
  const start = { group, object: cursor.varint() };
  if (cursor.isEmpty) {
    return start.group === 0n && start.object === 0n ? { type: "LargestObject" } : { type: "AbsoluteStart", start };
  }
  const groups = cursor.varint();
  return range(start, groups, cursor.isEmpty ? VARINT_MAX : cursor.varint());
}

/**
 * Reads a type 0 to 5 and its fields [moqt-22 §9.20.9].
 *
 * @param {Cursor} cursor
 * @returns {Filter}
 */
function readTypedFilter(cursor) {
  switch (cursor.varint()) {
    case 0n:
      return everything();
    case 1n:
      return backFromNextGroup(cursor.varint());
    case 2n:
      return { type: "AbsoluteStart", start: readLocation(cursor) };
    case 3n:
      return range(readLocation(cursor), cursor.varint(), VARINT_MAX);
    case 4n:
      return range(readLocation(cursor), cursor.varint(), cursor.varint());
    case 5n:
      return { type: "LargestObject" };
    default:
      throw new Violation("a location filter has an unknown type");
  }
}

/** @returns {Filter} the filter that all objects pass */
export function everything() {
  return { type: "AbsoluteStart", start: { group: 0n, object: 0n } };
}

/** @param {Filter} filter */
export function isEverything(filter) {
  return filter.type === "AbsoluteStart" && filter.start.group === 0n && filter.start.object === 0n;
}

/**
 * @param {bigint} groups
 * @returns {Filter}
 */
function backFromNextGroup(groups) {
  return groups === 0n ? { type: "NextGroupStart" } : { type: "Recent", groups: groups - 1n };
}

/**
 * @param {Location} start
 * @param {bigint} groups how many groups later the range ends
 * @param {bigint} object the last object of that group
 * @returns {Filter}
 */
function range(start, groups, object) {
  const group = start.group + groups;
  if (group > VARINT_MAX) throw new Violation("the end group of a filter is above 2^64 - 1");
  return { type: "AbsoluteRange", start, end: { group, object } };
}

/**
 * @param {Writer} writer
 * @param {Filter} filter
 * @param {Draft} draft
 */
function writeFilter(writer, filter, draft) {
  const form = filterForm(draft);
  if (form === "typed") {
    writer.varint(typeOfFilter(filter));
    if (!isEverything(filter)) writeFilterFields(writer, filter);
    return;
  }
  const inner = new Writer();
  if (form === "counted") {
    if (filter.type === "LargestObject") writeLocation(inner, { group: 0n, object: 0n });
    else if (!isEverything(filter)) writeFilterFields(inner, filter);
  } else {
    if (filter.type === "Recent") throw new RangeError("the draft has no filter that starts at a past group");
    inner.varint({ NextGroupStart: 1, LargestObject: 2, AbsoluteStart: 3, AbsoluteRange: 4 }[filter.type]);
    if ("start" in filter) writeLocation(inner, filter.start);
    if ("end" in filter) inner.varint(filter.end.group - filter.start.group);
  }
  writer.prefixed(inner.out);
}

/**
 * @param {Filter} filter
 * @returns {number} its type from draft-22 on
 */
function typeOfFilter(filter) {
  if (isEverything(filter)) return 0;
  if (filter.type === "AbsoluteRange") return filter.end.object === VARINT_MAX ? 3 : 4;
  return { NextGroupStart: 1, Recent: 1, AbsoluteStart: 2, LargestObject: 5 }[filter.type];
}

/**
 * Writes the fields that drafts from 20 on have in common.
 *
 * @param {Writer} writer
 * @param {Filter} filter
 */
function writeFilterFields(writer, filter) {
  switch (filter.type) {
    case "NextGroupStart":
      return writer.varint(0);
    case "Recent":
      return writer.varint(filter.groups + 1n);
    case "LargestObject":
      return;
    case "AbsoluteStart":
      return writeLocation(writer, filter.start);
    case "AbsoluteRange":
      writeLocation(writer, filter.start);
      writer.varint(filter.end.group - filter.start.group);
      if (filter.end.object !== VARINT_MAX) writer.varint(filter.end.object);
  }
}

/**
 * Reads the parameters of a fill, which begin with their number [moqt-22 §9.20.15].
 *
 * @param {Cursor} outer
 * @param {Draft} draft
 * @returns {Parameters}
 */
function readFill(outer, draft) {
  const cursor = new Cursor(outer.take(outer.varint()));
  const fill = readParameters(cursor, "FILL", draft);
  if (!cursor.isEmpty) throw new Violation("the parameters of a fill are followed by more bytes");
  return fill;
}

/**
 * @param {Writer} writer
 * @param {Parameters} fill
 * @param {Draft} draft
 */
function writeFill(writer, fill, draft) {
  const inner = new Writer();
  writeParameters(inner, fill, draft);
  writer.prefixed(inner.out);
}

/**
 * Returns how to read and write a range filter.
 *
 * @param {RangeFilterKind} kind
 */
function rangeFilter(kind) {
  return {
    read: (/** @type {Cursor} */ cursor) => ({ kind, value: cursor.take(cursor.varint()) }),
    write: (/** @type {Writer} */ writer, /** @type {RangeFilter} */ { value }) => writer.prefixed(value),
  };
}

/**
 * Returns how to read and write a flag.
 *
 * @param {string} otherwise the violation for a byte that is neither 0 nor 1
 */
function flag(otherwise) {
  return {
    read: (/** @type {Cursor} */ cursor) => oneOf(cursor.uint8(), [false, true], 0, otherwise),
    write: (/** @type {Writer} */ writer, /** @type {boolean} */ value) => writer.uint8(value ? 1 : 0),
  };
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
