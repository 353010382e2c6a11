/**
 * The error codes of all drafts, and the errors of a peer that violates the protocol.
 */

/** Why a session was closed [moqt-18 §15.10.1]. */
export const SessionCode = Object.freeze({
  NO_ERROR: 0x0,
  INTERNAL_ERROR: 0x1,
  UNAUTHORIZED: 0x2,
  PROTOCOL_VIOLATION: 0x3,
  INVALID_REQUEST_ID: 0x4,
  DUPLICATE_TRACK_ALIAS: 0x5,
  KEY_VALUE_FORMATTING_ERROR: 0x6,
  INVALID_PATH: 0x8,
  MALFORMED_PATH: 0x9,
  GOAWAY_TIMEOUT: 0x10,
  CONTROL_MESSAGE_TIMEOUT: 0x11,
  VERSION_NEGOTIATION_FAILED: 0x15,
  INVALID_AUTHORITY: 0x19,
  MALFORMED_AUTHORITY: 0x1a,
});

/** Why a request was refused [moqt-18 §15.10.2]. */
export const RequestCode = Object.freeze({
  INTERNAL_ERROR: 0x0,
  UNAUTHORIZED: 0x1,
  TIMEOUT: 0x2,
  NOT_SUPPORTED: 0x3,
  MALFORMED_AUTH_TOKEN: 0x4,
  EXPIRED_AUTH_TOKEN: 0x5,
  GOING_AWAY: 0x6,
  EXCESSIVE_LOAD: 0x9,
  DOES_NOT_EXIST: 0x10,
  INVALID_RANGE: 0x11,
  MALFORMED_TRACK: 0x12,
  UNINTERESTED: 0x20,
  REDIRECT: 0x34,
});

/** Why a track ended [moqt-18 §15.10.3]. */
export const DoneCode = Object.freeze({
  INTERNAL_ERROR: 0x0,
  UNAUTHORIZED: 0x1,
  TRACK_ENDED: 0x2,
  /** Until draft-19. */
  SUBSCRIPTION_ENDED: 0x3,
  GOING_AWAY: 0x4,
  TOO_FAR_BEHIND: 0x5,
  EXPIRED: 0x6,
  UPDATE_FAILED: 0x8,
  EXCESSIVE_LOAD: 0x9,
  MALFORMED_TRACK: 0x12,
});

/** Why a stream was reset or stopped [moqt-18 §15.10.4]. */
export const ResetCode = Object.freeze({
  INTERNAL_ERROR: 0x0,
  CANCELLED: 0x1,
  DELIVERY_TIMEOUT: 0x2,
  SESSION_CLOSED: 0x3,
  GOING_AWAY: 0x4,
  TOO_FAR_BEHIND: 0x5,
  EXCESSIVE_LOAD: 0x9,
  MALFORMED_TRACK: 0x12,
});

/**
 * @typedef {keyof typeof SessionCode} SessionCodeName
 */

/** The peer violated the protocol. The session is closed with this code. */
export class Violation extends Error {
  /**
   * @param {string} reason a text for people
   * @param {SessionCodeName} code
   */
  constructor(reason, code = "PROTOCOL_VIOLATION") {
    super(reason);
    this.name = "Violation";
    this.code = code;
  }
}

/** The bytes end within a field. More may arrive. */
export class Short extends Error {
  constructor() {
    super("the bytes end within a field");
    this.name = "Short";
  }
}

/** The peer refused a request. */
export class Refused extends Error {
  /**
   * @param {bigint} code one of {@link RequestCode}, or an unknown one
   * @param {string} reason the peer's text
   * @param {bigint | undefined} retryAfter milliseconds until it may be retried; absent if never
   * @param {import("./message/ending.js").Redirect | undefined} redirect where to try instead
   */
  constructor(code, reason, retryAfter, redirect) {
    super(`refused with ${nameOf(RequestCode, Number(code))}: ${reason}`);
    this.name = "Refused";
    this.code = Number(code);
    this.reason = reason;
    this.retryAfter = retryAfter;
    this.redirect = redirect;
  }
}

/**
 * Returns the name of a code, or its number if it has none.
 *
 * @param {Readonly<Record<string, number>>} codes
 * @param {number} code
 * @returns {string}
 */
export function nameOf(codes, code) {
  const found = Object.entries(codes).find(([, value]) => value === code);
  return found ? found[0] : `0x${code.toString(16)}`;
}
