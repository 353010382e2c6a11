/**
 * SETUP: the options of a session [moqt-18 §10.3] [moqt-19 §10.3.1].
 */

import { Writer, text, utf8 } from "../cursor.js";
import { setupHasLimits } from "../draft.js";
import { Violation } from "../error.js";
import { TOKENS_MAX, readToken, writeToken } from "../parameter.js";
import { readPairs, writePairs } from "../property.js";

/**
 * @typedef {import("../cursor.js").Cursor} Cursor
 * @typedef {import("../draft.js").Draft} Draft
 *
 * @typedef {object} Setup
 * @property {"SETUP"} type
 * @property {import("../parameter.js").Token[]} authorizationTokens
 * @property {string} [path]
 * @property {string} [authority]
 * @property {string} [implementation]
 * @property {bigint} [maxAuthTokenCacheSize]
 * @property {bigint} [maxFilterRanges] from draft-19 on; absent for 0
 * @property {bigint} [maxRequestUpdates] from draft-19 on
 */

/**
 * Reads the options of SETUP. All drafts use the same numbers [moqt-18 §10.3.1].
 *
 * @param {Cursor} cursor
 * @param {Draft} draft
 * @returns {Setup}
 */
export function readSetup(cursor, draft) {
  /** @type {Setup} */
  const setup = { type: "SETUP", authorizationTokens: [] };
  const once = (/** @type {keyof Setup} */ key) => {
    if (key in setup) throw new Violation("a setup option is repeated");
  };
  for (const option of readPairs(cursor.rest())) {
    const bytes = "bytes" in option ? option.bytes : new Uint8Array(0);
    switch (option.type) {
      case 0x01n:
        once("path");
        setup.path = readPath(bytes);
        break;
      case 0x03n: {
        if (setup.authorizationTokens.length === TOKENS_MAX) {
          throw new Violation("more authorization tokens in SETUP than this endpoint accepts", "INTERNAL_ERROR");
        }
        const token = readToken(bytes);
        if (token.aliasType === "DELETE" || token.aliasType === "USE_ALIAS") {
          throw new Violation("a token in SETUP refers to an alias");
        }
        setup.authorizationTokens.push(token);
        break;
      }
      case 0x04n:
        once("maxAuthTokenCacheSize");
        if ("int" in option) setup.maxAuthTokenCacheSize = option.int;
        break;
      case 0x05n:
        once("authority");
        setup.authority = readAuthority(bytes);
        break;
      case 0x06n:
        if (!setupHasLimits(draft)) break;
        once("maxFilterRanges");
        if ("int" in option) setup.maxFilterRanges = option.int;
        break;
      case 0x07n:
        once("implementation");
        setup.implementation = text(bytes);
        break;
      case 0x08n:
        if (!setupHasLimits(draft)) break;
        once("maxRequestUpdates");
        if ("int" in option) setup.maxRequestUpdates = option.int;
        break;
      default: // "Receivers MUST ignore unrecognized Setup Options", repeated or not.
    }
  }
  return setup;
}

/**
 * Writes the options of SETUP.
 *
 * @param {Writer} writer
 * @param {Setup} setup
 * @param {Draft} draft
 */
export function writeSetup(writer, setup, draft) {
  /** @type {import("../property.js").Property[]} */
  const options = [];
  if (setup.path !== undefined) options.push({ type: 0x01n, bytes: utf8(setup.path) });
  for (const token of setup.authorizationTokens) {
    const inner = new Writer();
    writeToken(inner, token);
    options.push({ type: 0x03n, bytes: inner.finish() });
  }
  if (setup.maxAuthTokenCacheSize !== undefined) options.push({ type: 0x04n, int: setup.maxAuthTokenCacheSize });
  if (setup.authority !== undefined) options.push({ type: 0x05n, bytes: utf8(setup.authority) });
  const limits = setupHasLimits(draft) ? setup : undefined;
  if (limits?.maxFilterRanges !== undefined) options.push({ type: 0x06n, int: limits.maxFilterRanges });
  if (setup.implementation !== undefined) options.push({ type: 0x07n, bytes: utf8(setup.implementation) });
  if (limits?.maxRequestUpdates !== undefined) options.push({ type: 0x08n, int: limits.maxRequestUpdates });
  writePairs(writer, options);
}

const URI_TEXT = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
const PATH = new RegExp(`^(?:[/?](?:${URI_TEXT}|[/?])*)?$`);
const AUTHORITY = new RegExp(`^(?:(?:${URI_TEXT})*@)?(?:\\[(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+\\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)(?::[0-9]*)?$`);

/** @param {Uint8Array} bytes */
function readPath(bytes) {
  const path = text(bytes);
  if (!PATH.test(path)) throw new Violation("PATH is not the path of a URI", "MALFORMED_PATH");
  return path;
}

/** @param {Uint8Array} bytes */
function readAuthority(bytes) {
  const authority = text(bytes);
  if (!AUTHORITY.test(authority)) throw new Violation("AUTHORITY is not the authority of a URI", "MALFORMED_AUTHORITY");
  return authority;
}
