/**
 * Problems, in words for people.
 */

import { Refused, RequestCode } from "../moqt/error.js";
import { shownRelay } from "../player/reception.js";
import { whyUnreachable } from "../player/relays.js";

/** @returns {string} why the browser cannot connect to any relay; empty if it can */
export function whyNoTransport() {
  if ("WebTransport" in globalThis) return "";
  return globalThis.isSecureContext
    ? "This browser has no WebTransport. Use Chromium 97, Firefox 114, Safari 26.4 or later."
    : "Browsers allow WebTransport only over https or on localhost. Open this page at such an address.";
}

/** @returns {string} why the browser cannot publish at all; empty if it can */
export function whyNoPublishing() {
  const reason = whyNoTransport();
  if (reason) return reason;
  if (!("VideoEncoder" in globalThis)) return "This browser cannot encode video with WebCodecs. Use Chromium 94 or later.";
  if (!("MediaStreamTrackProcessor" in globalThis)) {
    return "This browser does not give pages the frames of a camera (MediaStreamTrackProcessor). Use Chromium 94 or later.";
  }
  return "";
}

/** @returns {string} why the browser cannot publish audio; empty if it can */
export function whyNoSound() {
  return "AudioEncoder" in globalThis ? "" : "This browser cannot encode audio with WebCodecs. Untick “Publish sound” to publish without sound.";
}

/**
 * Returns why a stream could not be published.
 *
 * @param {unknown} error
 * @param {{ relay: string, namespace: string, certificateHashes: Uint8Array[], token?: string } | undefined} target the
 *   relay; undefined if it is not known
 * @returns {string}
 */
export function whyNotPublished(error, target) {
  if (!(error instanceof Error)) return String(error);
  if (error instanceof Refused) return whyRefused(error, target?.namespace ?? "", target?.token !== undefined);
  switch (error.name) {
    case "NotAllowedError":
      return "The browser did not allow this page to use the camera or the microphone. Allow it, then press “Go live” again.";
    case "NotFoundError":
      return "There is no camera or no microphone. Without a microphone, untick “Publish sound”. Without a camera, add ?fake to this page's address for a drawing.";
    case "NotReadableError":
      return "The camera or the microphone cannot be opened: another program may be using it.";
    case "TypeError":
      return target ? error.message : "The page's server does not answer, so the address of the relay is unknown. Check that the server is running.";
    case "WebTransportError":
      return whyUnreachable(shownRelay(target?.relay ?? ""), (target?.certificateHashes.length ?? 0) > 0);
    default:
      return error.message;
  }
}

/**
 * @param {Refused} error
 * @param {string} namespace
 * @param {boolean} hasToken whether a token was sent
 */
function whyRefused(error, namespace, hasToken) {
  switch (error.code) {
    case RequestCode.UNAUTHORIZED:
      return `The relay does not let you publish “${namespace}”: ${hasToken ? "the token does not permit it" : "a token is needed. Add token=TOKEN to this page's address"}.`;
    case RequestCode.EXPIRED_AUTH_TOKEN:
      return `The relay does not let you publish “${namespace}”: the token has expired.`;
    default:
      return `The relay refused the stream “${namespace}”: ${error.reason || error.message}`;
  }
}
