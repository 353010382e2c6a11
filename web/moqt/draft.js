/**
 * Drafts: what depends on the draft, apart from the parameters of messages.
 */

/** @typedef {18 | 19 | 20 | 21 | 22} Draft */

/** All drafts, newest first: the order in which they are offered.
 * @type {readonly Draft[]} */
export const DRAFTS = Object.freeze([22, 21, 20, 19, 18]);

/**
 * @param {Draft} draft
 * @returns {string} the WebTransport subprotocol of the draft
 */
export function protocolOf(draft) {
  return `moqt-${draft}`;
}

/**
 * @param {string | undefined} protocol
 * @returns {Draft | undefined} the draft with this WebTransport subprotocol
 */
export function draftOf(protocol) {
  return DRAFTS.find((draft) => protocolOf(draft) === protocol);
}

/**
 * Returns whether past objects of a subscription are requested with a FETCH that joins it. In later drafts the subscription
 * asks for a fill, FETCH has a filter in place of a range, and ends of ranges are inclusive [moqt-18 §10.12]
 * [moqt-22 §3.4, §9.11].
 *
 * @param {Draft} draft
 */
export function hasJoiningFetches(draft) {
  return draft < 20;
}

/**
 * Returns whether GOAWAY on the control stream has a Request ID [moqt-18 §10.4].
 *
 * @param {Draft} draft
 */
export function goAwayHasRequestId(draft) {
  return draft === 18;
}

/**
 * Returns whether SETUP announces limits of range filters and updates [moqt-19 §10.3.1].
 *
 * @param {Draft} draft
 */
export function setupHasLimits(draft) {
  return draft > 18;
}

/**
 * Returns whether a publisher reports changes with PUBLISH_STATE_NOTIFY [moqt-22 §9.10].
 *
 * @param {Draft} draft
 */
export function hasStateNotify(draft) {
  return draft >= 20;
}

/**
 * Returns the number of streams in PUBLISH_DONE that means an unknown number [moqt-18 §10.11] [moqt-22 §9.9].
 *
 * @param {Draft} draft
 */
export function streamCountUnknown(draft) {
  return draft < 20 ? (1n << 62n) - 1n : (1n << 64n) - 1n;
}

/**
 * Returns why no objects follow on a fetch stream, if that is what these serialization flags say [moqt-18 §11.4.4]
 * [moqt-22 §11.4.1].
 *
 * @param {Draft} draft
 * @param {bigint} flags
 * @returns {"non_existent" | "unknown" | "timed_out" | undefined}
 */
export function endOfRange(draft, flags) {
  if (flags === 0x8cn) return "non_existent";
  if (flags === 0x10cn) return "unknown";
  if (flags === 0x20cn && draft >= 20) return "timed_out";
  return undefined;
}

/**
 * Returns how a location filter is encoded: with a type and its length, as fields and their length, or with a type only
 * [moqt-18 §5.1.2] [moqt-21 §9.20.10] [moqt-22 §9.20.9].
 *
 * @param {Draft} draft
 * @returns {"subscription" | "counted" | "typed"}
 */
export function filterForm(draft) {
  if (draft < 20) return "subscription";
  return draft < 22 ? "counted" : "typed";
}
