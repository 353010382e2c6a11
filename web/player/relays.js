/** The relays of a stream, which its publisher or player tries in turn. */

/**
 * Returns the relay that a GOAWAY names; undefined if it names none.
 *
 * @param {string} uri its New Session URI
 * @returns {string | undefined}
 */
export function named(uri) {
  return uri === "" ? undefined : uri.replace(/^moqt:/, "https:");
}

/**
 * Returns the relays to try in turn.
 *
 * @param {string[]} relays those of the page
 * @param {string | undefined} successor the one that the last GOAWAY named, which comes first. The others stay, since it may fail
 * @returns {string[]}
 */
export function inTurn(relays, successor) {
  return successor === undefined ? relays : [successor, ...relays.filter((relay) => relay !== successor)];
}
