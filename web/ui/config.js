/**
 * The location of the stream: as the page's server says, unless the page's URL says otherwise.
 *
 * Parameters of the URL: `relay` (several with commas between: when the page loses one, it uses the next), `hash` (SHA-256 of the relay's certificate, in hexadecimal digits), `namespace`,
 * `strategy`, `token`, `drafts` (such as `moqt-22,moqt-18`; all if absent), `join` (`next` or `current`), `buffer` (`adaptive`, `strategy` or milliseconds).
 */

import { DRAFTS, protocolOf } from "../moqt/draft.js";

/** A SHA-256 hash in hexadecimal digits. */
const HASH = /^[0-9a-f]{64}$/i;

/**
 * Returns the protocol of a draft of MOQT.
 *
 * @param {string} text such as `moqt-22` or `22`
 * @returns {string}
 * @throws {RangeError} it is not a draft that the page speaks
 */
function protocolNamed(text) {
  const protocols = DRAFTS.map(protocolOf);
  const found = protocols.find((protocol) => protocol === text || protocol === `moqt-${text}`);
  if (!found) throw new RangeError(`“${text}” is not a draft that this page speaks (drafts=). Expected some of ${protocols.join(", ")}.`);
  return found;
}

/** @returns {URLSearchParams} */
export function parameters() {
  return new URLSearchParams(location.search);
}

/**
 * Asks the page's server each time, since the relay's certificate may have changed.
 *
 * @returns {Promise<import("../player/reception.js").Target>}
 * @throws {RangeError} a parameter of the page's address is wrong
 */
export async function target() {
  const wanted = parameters();
  /** @type {any} */
  let known = {};
  if (!wanted.has("relay")) {
    const answer = await fetch("config.json", { cache: "no-store" });
    if (!answer.ok) throw new Error(`the page's server answers config.json with status ${answer.status}`);
    known = await answer.json();
  }
  const relay = wanted.get("relay") ?? known.relay;
  const hash = wanted.get("hash") ?? (wanted.has("relay") ? undefined : known.certificate_sha256);
  if (hash && !HASH.test(hash)) throw new RangeError("The certificate hash (hash=) must have 64 hexadecimal digits.");
  const digits = /** @type {string[]} */ (hash?.match(/../g) ?? []);
  const token = wanted.get("token") ?? known.token;
  const strategy = wanted.get("strategy") ?? known.strategy;
  const protocols = wanted.get("drafts")?.split(",").map(protocolNamed) ?? known.drafts;
  const relays = String(relay).split(/,(?=https:|moqt:)/).map((one) => one.replace(/^moqt:/, "https:"));
  return {
    relay: relays[0] ?? "",
    relays,
    certificateHashes: hash ? [Uint8Array.from(digits, (pair) => Number.parseInt(pair, 16))] : [],
    namespace: wanted.get("namespace") ?? known.namespace ?? "live",
    ...(token ? { token } : {}),
    ...(strategy ? { strategy } : {}),
    ...(protocols ? { protocols } : {}),
  };
}
