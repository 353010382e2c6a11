/**
 * What is wrong, in words for people.
 */

import { Refused, RequestCode } from "../moqt/error.js";

/** @returns {string} why this page cannot reach any relay; empty if it can */
export function whyNoTransport() {
  if ("WebTransport" in globalThis) return "";
  return globalThis.isSecureContext
    ? "This browser has no WebTransport. Chromium 97, Firefox 114 and Safari 26.4, or later ones, have."
    : "A browser gives a page WebTransport only over https or on localhost.";
}

/** @returns {string} why this page cannot publish at all; empty if it can */
export function whyNoPublishing() {
  const reason = whyNoTransport();
  if (reason) return reason;
  if (!("VideoEncoder" in globalThis)) return "This browser cannot encode video by WebCodecs. Chromium 94 and later ones can.";
  if (!("MediaStreamTrackProcessor" in globalThis)) {
    return "This browser does not hand the pictures of a camera to a page (MediaStreamTrackProcessor). Chromium 94 and later ones do.";
  }
  return "";
}

/** @returns {string} why this page cannot publish sound; empty if it can */
export function whyNoSound() {
  return "AudioEncoder" in globalThis ? "" : "This browser cannot encode sound by WebCodecs. It can publish without sound.";
}

/**
 * Why a stream could not be published.
 *
 * @param {unknown} error
 * @param {{ relay: string, namespace: string, certificateHashes: Uint8Array[], token?: string } | undefined} target where to;
 *   nothing if it did not come so far
 * @returns {string}
 */
export function whyNotPublished(error, target) {
  if (!(error instanceof Error)) return String(error);
  if (error instanceof Refused) return whyRefused(error, target?.namespace ?? "", target?.token !== undefined);
  switch (error.name) {
    case "NotAllowedError":
      return "The browser was not allowed to use the camera or the microphone.";
    case "NotFoundError":
      return "There is no camera, or no microphone. Without sound a camera is enough.";
    case "NotReadableError":
      return "The camera or the microphone cannot be opened: another program may be using it.";
    case "TypeError":
      return target ? error.message : "The page's server does not answer, so it is not known where the relay is.";
    case "WebTransportError": {
      const isNamed = (target?.certificateHashes.length ?? 0) > 0;
      const trusted = isNamed ? "its certificate is not the one that this page was told" : "its certificate is not trusted";
      return `The relay at ${target?.relay} cannot be reached, or ${trusted}.`;
    }
    default:
      return error.message;
  }
}

/**
 * @param {Refused} error
 * @param {string} namespace
 * @param {boolean} hasToken whether a token was shown
 */
function whyRefused(error, namespace, hasToken) {
  switch (error.code) {
    case RequestCode.UNAUTHORIZED:
      return `The relay does not let you publish “${namespace}”: ${hasToken ? "the token does not permit it" : "a token is needed"}.`;
    case RequestCode.EXPIRED_AUTH_TOKEN:
      return `The relay does not let you publish “${namespace}”: the token has expired.`;
    default:
      return `The relay refused the stream “${namespace}”: ${error.reason || error.message}`;
  }
}
