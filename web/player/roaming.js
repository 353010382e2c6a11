/**
 * Publishes through one of several relays, and moves to the next when one is lost, or to the one that a GOAWAY names. Each relay gets
 * a publisher of its own, whose groups have higher numbers than those before; players take it for the same stream, since its catalog
 * is the same.
 */

import { inTurn } from "./relays.js";

/** The shortest and the longest pause before the next relay is tried, in milliseconds. */
const PAUSE_MIN_MS = 100;
const PAUSE_MAX_MS = 4000;
/** How often each relay is tried after a stream was lost. Before a stream was live, each is tried once. */
const ROUNDS_MAX = 5;

/**
 * @typedef {import("./publisher.js").Publisher} Publisher
 * @typedef {import("./reception.js").Target} Target
 *
 * @typedef {object} Roaming
 * @property {(target: Target) => Publisher} make returns a publisher for a relay, with sources of its own
 * @property {AbortSignal} signal ends the stream
 * @property {() => void} onAccepted called when a relay has accepted the tracks
 * @property {(reason: string) => void} onLost called when the next relay will be tried
 */

/**
 * Publishes until the signal, the end of the sources, or until no relay can be used.
 *
 * @param {Target} target
 * @param {Roaming} roaming
 * @returns {Promise<string>} why it ended, of the last relay; empty after the signal, or if the source ended
 */
export async function publishThroughAny(target, { make, signal, onAccepted, onLost }) {
  const { relays = [target.relay] } = target;
  let failures = 0;
  let wasLive = false;
  let known = relays;
  for (let turn = 0; ; turn++) {
    const publisher = make({ ...target, relay: known[turn % known.length] ?? target.relay });
    const stop = () => publisher.stop();
    signal.addEventListener("abort", stop);
    if (signal.aborted) stop();
    /** @type {{ reason: string } | { error: unknown }} */
    let outcome;
    try {
      const reason = await publisher.run(() => {
        failures = 0;
        wasLive = true;
        onAccepted();
      });
      outcome = { reason };
    } catch (error) {
      outcome = { error };
    }
    signal.removeEventListener("abort", stop);
    if (signal.aborted) return "";
    if (publisher.successor !== undefined) {
      known = inTurn(relays, publisher.successor);
      turn = -1;
    }
    failures += 1;
    const isLost = ("error" in outcome || outcome.reason !== "") && !publisher.problem;
    const isLast = failures >= known.length * (wasLive ? ROUNDS_MAX : 1);
    if (!isLost || known.length === 1 || isLast) {
      if ("error" in outcome) throw outcome.error;
      return outcome.reason;
    }
    onLost("error" in outcome ? String(outcome.error) : outcome.reason);
    await pause(Math.min(PAUSE_MAX_MS, PAUSE_MIN_MS * 2 ** (failures - 1)), signal);
    if (signal.aborted) return "";
  }
}

/**
 * @param {number} ms
 * @param {AbortSignal} signal ends the pause
 */
async function pause(ms, signal) {
  await new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve(undefined);
    }, { once: true });
  });
}
