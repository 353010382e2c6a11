/**
 * Messages that end a session, a subscription or a request: GOAWAY, PUBLISH_DONE and REQUEST_ERROR
 * [moqt-18 §10.4, §10.6, §10.11].
 */

import { strictText, text, utf8 } from "../cursor.js";
import { goAwayHasRequestId, streamCountUnknown } from "../draft.js";
import { Violation } from "../error.js";
import { readFullTrackName, writeFullTrackName } from "../name.js";

/** The most bytes of a reason phrase. */
const REASON_BYTES_MAX = 1024;
/** The most bytes of a URI. */
const URI_BYTES_MAX = 8192;
const REDIRECT = 0x34n;

/**
 * @typedef {import("../cursor.js").Cursor} Cursor
 * @typedef {import("../cursor.js").Writer} Writer
 * @typedef {import("../draft.js").Draft} Draft
 *
 * @typedef {import("../name.js").FullTrackName & { connectUri: string }} Redirect
 *
 * @typedef {object} GoAway
 * @property {"GOAWAY"} type
 * @property {string} newSessionUri empty for the current one
 * @property {bigint} [timeout] milliseconds
 * @property {bigint} [requestId] on control streams of draft-18 only
 *
 * @typedef {{ type: "PUBLISH_DONE", code: bigint, streamCount?: bigint, reason: string }} PublishDone
 * @typedef {{ type: "REQUEST_ERROR", code: bigint, retryAfter?: bigint, reason: string, redirect?: Redirect }} RequestError
 */

/**
 * @param {Cursor} cursor
 * @param {Draft} draft
 * @returns {GoAway}
 */
export function readGoAway(cursor, draft) {
  /** @type {GoAway} */
  const goAway = { type: "GOAWAY", newSessionUri: readUri(cursor) };
  const timeout = cursor.varint();
  if (timeout > 0n) goAway.timeout = timeout;
  if (!cursor.isEmpty && goAwayHasRequestId(draft)) goAway.requestId = cursor.varint();
  return goAway;
}

/**
 * @param {Writer} writer
 * @param {GoAway} goAway
 * @param {Draft} draft
 */
export function writeGoAway(writer, goAway, draft) {
  writer.prefixed(utf8(goAway.newSessionUri));
  writer.varint(goAway.timeout ?? 0n);
  if (goAway.requestId !== undefined && goAwayHasRequestId(draft)) writer.varint(goAway.requestId);
}

/**
 * @param {Cursor} cursor
 * @param {Draft} draft
 * @returns {PublishDone}
 */
export function readPublishDone(cursor, draft) {
  const code = cursor.varint();
  const streamCount = cursor.varint();
  const reason = readReason(cursor);
  return { type: "PUBLISH_DONE", code, reason, ...(streamCount === streamCountUnknown(draft) ? {} : { streamCount }) };
}

/**
 * @param {Writer} writer
 * @param {PublishDone} done
 * @param {Draft} draft
 */
export function writePublishDone(writer, done, draft) {
  writer.varint(done.code);
  writer.varint(done.streamCount ?? streamCountUnknown(draft));
  writeReason(writer, done.reason);
}

/**
 * @param {Cursor} cursor
 * @returns {RequestError}
 */
export function readRequestError(cursor) {
  const code = cursor.varint();
  const retry = cursor.varint();
  /** @type {RequestError} */
  const error = { type: "REQUEST_ERROR", code, reason: readReason(cursor) };
  if (retry > 0n) error.retryAfter = retry - 1n;
  if (code === REDIRECT) error.redirect = { connectUri: readUri(cursor), ...readFullTrackName(cursor) };
  return error;
}

/**
 * @param {Writer} writer
 * @param {RequestError} error
 */
export function writeRequestError(writer, error) {
  writer.varint(error.code);
  writer.varint(error.retryAfter === undefined ? 0n : error.retryAfter + 1n);
  writeReason(writer, error.reason);
  if (!error.redirect) return;
  writer.prefixed(utf8(error.redirect.connectUri));
  writeFullTrackName(writer, error.redirect);
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
