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
 * Returns what to say of a relay to which no connection comes about.
 *
 * @param {string} relay as it is shown
 * @param {boolean} isNamed whether the page has the hash of its certificate
 * @returns {string}
 */
export function whyUnreachable(relay, isNamed) {
  const [trusted, advice] = isNamed
    ? ["its certificate does not match the hash that this page has", "that the hash is current, and that the certificate is valid for at most 14 days: browsers accept no other by its hash"]
    : ["the browser does not trust its certificate", "and that UDP is not blocked. If no authority has signed its certificate, add hash=HASH to this page's address"];
  return `The relay at ${relay} cannot be reached, or ${trusted}. Check that the relay is running${isNamed ? "," : ""} ${advice}.`;
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
