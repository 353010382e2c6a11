/**
 * FETCH, whose range has another encoding from draft-20 on [moqt-18 §10.12] [moqt-22 §9.11].
 */

import { hasJoiningFetches } from "../draft.js";
import { Violation } from "../error.js";
import { readFullTrackName, writeFullTrackName } from "../name.js";
import { everything, isEverything, readLocation, readParameters, writeLocation, writeParameters } from "../parameter.js";
import { VARINT_MAX } from "../varint.js";

/**
 * @typedef {import("../cursor.js").Cursor} Cursor
 * @typedef {import("../cursor.js").Writer} Writer
 * @typedef {import("../draft.js").Draft} Draft
 * @typedef {import("../name.js").FullTrackName} FullTrackName
 * @typedef {import("../parameter.js").Location} Location
 * @typedef {import("../parameter.js").Parameters} Parameters
 *
 * @typedef {FullTrackName & { type: "Standalone", start: Location, end: Location }} Standalone
 * @typedef {FullTrackName & { type: "Recent", groups: bigint }} Recent from draft-20 on
 * @typedef {{ type: "RelativeJoining", requestId: bigint, groups: bigint }} RelativeJoining until draft-19
 * @typedef {{ type: "AbsoluteJoining", requestId: bigint, group: bigint }} AbsoluteJoining until draft-19
 * @typedef {Standalone | Recent | RelativeJoining | AbsoluteJoining} FetchKind
 * @typedef {{ type: "FETCH", requestId: bigint, fetch: FetchKind, parameters: Parameters }} Fetch
 */

/**
 * Reads a FETCH after its Request ID. Until draft-19 its kind is a field [moqt-18 §10.12]; later its range is a parameter
 * [moqt-22 §9.11].
 *
 * @param {Cursor} cursor
 * @param {Draft} draft
 * @returns {{ fetch: FetchKind, parameters: Parameters }}
 */
export function readFetch(cursor, draft) {
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
 * @param {import("../parameter.js").Filter} filter
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
 * @returns {import("../parameter.js").Filter} the filter that its objects pass
 */
function filterOfFetch(fetch) {
  if (fetch.type === "Recent") return { type: "Recent", groups: fetch.groups };
  if (fetch.type !== "Standalone") throw new RangeError("the draft has no joining FETCH");
  const { start, end } = fetch;
  const isOpen = end.group === VARINT_MAX && end.object === VARINT_MAX;
  return isOpen ? { type: "AbsoluteStart", start } : { type: "AbsoluteRange", start, end };
}

/**
 * Writes a FETCH after its Request ID.
 *
 * @param {Writer} writer
 * @param {Fetch} message
 * @param {Draft} draft
 */
export function writeFetch(writer, { fetch, parameters }, draft) {
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
export function readEnd(cursor, draft) {
  const { group, object } = readLocation(cursor);
  if (!hasJoiningFetches(draft)) return { group, object };
  return { group, object: object === 0n ? VARINT_MAX : object - 1n };
}

/**
 * Writes the end of a range.
 *
 * @param {Writer} writer
 * @param {Location} end
 * @param {Draft} draft
 */
export function writeEnd(writer, { group, object }, draft) {
  if (!hasJoiningFetches(draft)) return writeLocation(writer, { group, object });
  writeLocation(writer, { group, object: object === VARINT_MAX ? 0n : object + 1n });
}
