// How a receiver keeps a stream running, with a mock clock and mock relays.

import assert from "node:assert/strict";
import { afterEach, mock, test } from "node:test";

import { utf8 } from "../moqt/cursor.js";
import { Session } from "../moqt/session.js";
import { HANDOVER_MS, LINGER_MS, Receiver, TARGET_MS, WATCHDOG_MS } from "../player/receiver.js";

const VIDEO = { name: "video", packaging: "loc", role: "video", codec: "avc1.64001f" };
const SOUND = { name: "sound", packaging: "loc", role: "audio", codec: "opus" };
const TARGET = { relay: "https://relay/", certificateHashes: [], namespace: "live" };
const STEP_MS = 50;

afterEach(() => {
  mock.timers.reset();
  mock.restoreAll();
});

/** A session with a relay that has a catalog and tracks. */
class PlayedSession {
  /**
   * @param {string} relay
   * @param {object[]} tracks
   */
  constructor(relay, tracks) {
    this.relay = relay;
    this.catalog = utf8(JSON.stringify({ tracks }));
    this.isClosed = false;
    this.closed = new Promise((resolve) => {
      this.end = resolve;
    });
    /** @type {Map<string, import("../moqt/subscription.js").Sink>} */
    this.sinks = new Map();
    /** Where each track was joined.
     * @type {Map<string, string>} */
    this.filters = new Map();
    /** @type {((goAway: { newSessionUri: string }) => void) | undefined} */
    this.onGoAway = undefined;
  }

  /**
   * @param {{ trackName: Uint8Array }} track
   * @param {{ filter?: { type: string } }} parameters
   * @param {import("../moqt/subscription.js").Sink} sink
   */
  async subscribe({ trackName }, parameters, sink) {
    const name = new TextDecoder().decode(trackName);
    this.filters.set(name, parameters.filter?.type ?? "");
    if (name === "catalog") sink.onObject(/** @type {any} */ ({ payload: this.catalog }));
    else this.sinks.set(name, sink);
    return { ok: { parameters: {} }, cancel: () => {} };
  }

  /**
   * @param {string} name of an object that arrives
   * @param {"video" | "sound"} [track]
   */
  bring(name, track = "video") {
    const object = /** @type {any} */ ({ name, group: 1n, id: 0n, properties: [], payload: new Uint8Array(1) });
    const sink = this.sinks.get(track);
    if (sink?.onHead?.(object) !== false) sink?.onObject(object);
  }

  close() {
    this.isClosed = true;
    this.end?.("it was closed");
  }
}

/** A receiver, its clock, and its relays. */
class Stage {
  /** @param {object[]} tracks that exist */
  constructor(...tracks) {
    this.now = 0;
    mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
    mock.method(performance, "now", () => this.now);
    mock.method(Math, "random", () => 0.5);
    /** When it connected, in milliseconds.
     * @type {number[]} */
    this.tries = [];
    /** @type {PlayedSession[]} */
    this.sessions = [];
    /** Whether relays refuse connections. */
    this.isDown = false;
    Session.connect = async (relay) => {
      this.tries.push(this.now);
      if (this.isDown) throw new Error("nobody is there");
      const session = new PlayedSession(relay, tracks.length > 0 ? tracks : [VIDEO]);
      this.sessions.push(session);
      return /** @type {any} */ (session);
    };
    /** The answer of the page's server.
     * @type {() => Promise<typeof TARGET>} */
    this.answer = async () => ({ ...TARGET });
    /** When the page's server was asked, in milliseconds.
     * @type {number[]} */
    this.asked = [];
    /** @type {string[]} */
    this.states = [];
    /** @type {string[]} */
    this.occasions = [];
    /** The names of the objects that were played.
     * @type {string[]} */
    this.taken = [];
    this.receiver = new Receiver("next", {
      target: () => {
        this.asked.push(this.now);
        return this.answer();
      },
      onPlan: (_plan, occasion) => {
        this.occasions.push(occasion);
        return occasion === "handover";
      },
      onUseless: () => {},
      sinkOf: () => ({ onObject: (object) => this.taken.push(/** @type {any} */ (object).name) }),
      onState: (state) => this.states.push(state),
    });
    this.receiver.start();
  }

  /**
   * Advances the clock.
   *
   * @param {number} ms
   * @param {() => void} [each] called in each step
   */
  async pass(ms, each = () => {}) {
    for (let passed = 0; passed < ms; passed += STEP_MS) {
      await new Promise(setImmediate);
      this.now += STEP_MS;
      mock.timers.tick(STEP_MS);
      await new Promise(setImmediate);
      each();
    }
  }

  /** @returns {number[]} the times between attempts */
  get pauses() {
    return this.tries.slice(1).map((at, place) => at - this.tries[place]);
  }
}

test("pauses between tries grow up to eight seconds, and are short again for who hurries", async () => {
  const stage = new Stage();
  stage.isDown = true;
  await stage.pass(40_000);
  assert.deepEqual(stage.pauses.slice(0, 8), [250, 500, 1000, 2000, 4000, 8000, 8000, 8000]);
  assert.equal(stage.receiver.counters.reconnects, stage.tries.length);
  const { length } = stage.tries;
  stage.receiver.hurry();
  await stage.pass(800);
  assert.deepEqual(stage.pauses.slice(length), [250, 500]);
  stage.receiver.stop();
  await stage.pass(20_000);
  assert.equal(stage.tries.length, length + 3, "who stopped tries no more");
});

test("after a reception that lasted the pause is short again, after a short one it is not", async () => {
  const stage = new Stage();
  stage.isDown = true;
  await stage.pass(2000);
  stage.isDown = false;
  await stage.pass(2000);
  assert.deepEqual(stage.pauses, [250, 500, 1000, 2000]);
  await stage.pass(1000);
  for (const [place, pauseMs] of [[0, 4000], [1, 250]]) {
    const closedAt = stage.now;
    stage.sessions[place].close();
    await stage.pass(pauseMs + 100);
    assert.equal((stage.tries.at(-1) ?? 0) - closedAt, pauseMs);
    // The next reception is long enough.
    await stage.pass(11_000, () => stage.sessions[place + 1].bring("object"));
  }
  stage.receiver.stop();
});

test("without an object for a while a second connection is tried, and kept if it brings something", async () => {
  const stage = new Stage();
  await stage.pass(500);
  await stage.pass(1000, () => stage.sessions[0].bring("first"));
  await stage.pass(WATCHDOG_MS);
  assert.equal(stage.sessions.length, 1, "not before");
  await stage.pass(300);
  const [first, second] = stage.sessions;
  assert.equal(stage.receiver.counters.watchdogs, 1);
  assert.equal(first.isClosed, false, "it may go on yet");
  second.bring("second");
  assert.equal(first.isClosed, true);
  assert.deepEqual(stage.occasions, ["connected", "connected"]);
  assert.equal(stage.taken.at(-1), "second");
  await stage.pass(3000, () => second.bring("second"));
  assert.equal(stage.sessions.length, 2);
  assert.deepEqual(stage.states, ["connecting", "subscribed"]);
  stage.receiver.stop();
});

test("a second connection is closed if the first goes on", async () => {
  const stage = new Stage();
  await stage.pass(500);
  await stage.pass(2500);
  const [first, second] = stage.sessions;
  await stage.pass(500, () => first.bring("first"));
  assert.deepEqual([first.isClosed, second.isClosed], [false, true]);
  assert.equal(stage.taken.at(-1), "first");
  stage.receiver.stop();
});

test("second connections are tried less and less often", async () => {
  const stage = new Stage();
  await stage.pass(500);
  stage.isDown = true;
  await stage.pass(60_000);
  const pauses = stage.pauses.slice(1, 7);
  assert.deepEqual([...pauses].sort((one, other) => one - other), pauses);
  assert.ok(pauses[0] <= WATCHDOG_MS + 1000 && pauses[5] >= WATCHDOG_MS + 8000 && pauses[5] <= WATCHDOG_MS + 8500, `${pauses}`);
  stage.receiver.stop();
});

test("a relay that goes away is played from until another connection brings something, and a little longer", async () => {
  const stage = new Stage();
  await stage.pass(500);
  const [first] = stage.sessions;
  await stage.pass(500, () => first.bring("first"));
  first.onGoAway?.({ newSessionUri: "" });
  await stage.pass(3000, () => first.bring("first"));
  const [, second] = stage.sessions;
  assert.deepEqual([stage.sessions.length, first.isClosed, second.isClosed], [2, false, false]);
  const joined = [first, second].map(({ filters }) => filters.get("video"));
  assert.deepEqual(joined, ["NextGroupStart", "LargestObject"], "the rest of a group may be at no other relay");
  assert.equal(stage.taken.at(-1), "first");
  second.bring("second");
  assert.deepEqual(stage.occasions, ["connected", "handover"]);
  await stage.pass(LINGER_MS - 100, () => {
    first.bring("first");
    second.bring("second");
  });
  assert.deepEqual([first.isClosed, stage.taken.slice(-2)], [false, ["first", "second"]]);
  await stage.pass(200);
  assert.deepEqual([first.isClosed, second.isClosed], [true, false]);
  first.bring("first");
  assert.equal(stage.taken.at(-1), "second");
  await stage.pass(3000, () => second.bring("second"));
  assert.deepEqual([stage.sessions.length, stage.states], [2, ["connecting", "subscribed"]]);
  stage.receiver.stop();
});

test("a connection that takes the place of a relay that goes away is not waited for without end", async () => {
  const stage = new Stage();
  await stage.pass(500);
  const [first] = stage.sessions;
  const goesOn = () => first.bring("first");
  await stage.pass(500, goesOn);
  first.onGoAway?.({ newSessionUri: "moqt://other/" });
  await stage.pass(HANDOVER_MS, goesOn);
  const second = stage.sessions[1];
  assert.deepEqual([second.relay, second.isClosed], ["https://other/", false]);
  await stage.pass(1000, goesOn);
  assert.equal(second.isClosed, true);
  const third = stage.sessions[2];
  assert.equal(third.relay, "https://relay/", "where the relay sent it there was nothing");
  // The relay sends GOAWAY on that one too, and then closes the first.
  third.onGoAway?.({ newSessionUri: "" });
  assert.equal(third.isClosed, true);
  await stage.pass(1500, goesOn);
  assert.equal(stage.sessions.length, 4);
  stage.sessions[3].bring("fourth");
  assert.equal(stage.taken.at(-1), "fourth");
  assert.equal(stage.receiver.counters.goAways, 2);
  stage.receiver.stop();
});

test("the relay that a GOAWAY names is tried again after a failure, since the one before may be gone", async () => {
  const stage = new Stage();
  await stage.pass(500);
  const [first] = stage.sessions;
  await stage.pass(500, () => first.bring("first"));
  first.onGoAway?.({ newSessionUri: "moqt://other/" });
  await stage.pass(100);
  // The first connection to the other relay fails, and the relay that goes away ends.
  stage.sessions[1].close();
  await stage.pass(100, () => first.bring("first"));
  first.close();
  await stage.pass(100);
  const tried = () => stage.sessions.map(({ relay }) => relay);
  await stage.pass(5000, () => stage.sessions.filter(({ relay, isClosed }) => relay === "https://relay/" && !isClosed).forEach((one) => one.close()));
  assert.deepEqual(tried().slice(0, 4), ["https://relay/", "https://other/", "https://relay/", "https://other/"]);
  stage.sessions[3].bring("fourth");
  // A loss of that one does not end at the relay that is gone either.
  stage.sessions[3].close();
  await stage.pass(5000, () => stage.sessions.filter(({ relay, isClosed }) => relay === "https://relay/" && !isClosed).forEach((one) => one.close()));
  assert.deepEqual(tried().slice(4, 6), ["https://relay/", "https://other/"]);
  stage.receiver.stop();
});

test("beside a relay that goes away sound alone is no reason to leave it: the picture comes later", async () => {
  const stage = new Stage(VIDEO, SOUND);
  await stage.pass(500);
  const [first] = stage.sessions;
  const goesOn = () => first.bring("picture of the first");
  await stage.pass(500, goesOn);
  first.onGoAway?.({ newSessionUri: "" });
  await stage.pass(LINGER_MS * 2, () => {
    goesOn();
    stage.sessions[1]?.bring("sound of the second", "sound");
  });
  assert.deepEqual([first.isClosed, stage.occasions, stage.taken.at(-1)], [false, ["connected"], "picture of the first"]);
  const [, second] = stage.sessions;
  second.bring("picture of the second");
  second.bring("sound of the second", "sound");
  assert.deepEqual([stage.occasions, stage.taken.slice(-2)], [["connected", "handover"], ["picture of the second", "sound of the second"]]);
  // If the other one delivers nothing, audio is better than that.
  await stage.pass(WATCHDOG_MS + 500);
  stage.sessions[2].bring("sound of the third", "sound");
  assert.deepEqual([second.isClosed, stage.taken.at(-1)], [true, "sound of the third"]);
  stage.receiver.stop();
});

test("a connection whose turn comes because the relay before closed is watched before it brings anything", async () => {
  const stage = new Stage();
  await stage.pass(500);
  const [first] = stage.sessions;
  await stage.pass(500, () => first.bring("first"));
  first.onGoAway?.({ newSessionUri: "" });
  await stage.pass(1000, () => first.bring("first"));
  first.close();
  await stage.pass(WATCHDOG_MS - 100);
  assert.equal(stage.sessions.length, 2);
  await stage.pass(1000);
  assert.deepEqual([stage.sessions.length, stage.receiver.counters.watchdogs], [3, 1]);
  stage.sessions[2].bring("third");
  assert.deepEqual([stage.taken.at(-1), stage.sessions[1].isClosed], ["third", true]);
  stage.receiver.stop();
});

test("between connections that bring nothing in the place of a relay that goes away there are pauses, which grow", async () => {
  const stage = new Stage();
  await stage.pass(500);
  const [first] = stage.sessions;
  const goesOn = () => first.bring("first");
  await stage.pass(500, goesOn);
  first.onGoAway?.({ newSessionUri: "" });
  await stage.pass(40_000, goesOn);
  // Each attempt has its time. Four times a second the receiver checks whether that time and the pause after it are
  // over.
  assert.deepEqual(stage.pauses.slice(1, 4), [1000, 1500, 2500].map((ms) => HANDOVER_MS + ms));
  assert.equal(stage.taken.at(-1), "first");
  stage.receiver.stop();
});

test("the page's server is asked once at a time, and less and less often if it does not answer", async () => {
  const stage = new Stage();
  await stage.pass(500);
  const [first] = stage.sessions;
  const goesOn = () => first.bring("first");
  await stage.pass(500, goesOn);
  stage.answer = () => new Promise(() => {});
  first.onGoAway?.({ newSessionUri: "" });
  await stage.pass(TARGET_MS - STEP_MS, goesOn);
  assert.equal(stage.asked.length, 2, "it has not answered yet");
  stage.answer = () => Promise.reject(new Error("nobody is there"));
  await stage.pass(5000, goesOn);
  const pauses = stage.asked.slice(2).map((at, place) => at - stage.asked[place + 1]);
  assert.deepEqual(pauses, [TARGET_MS + 750, 1250, 2250]);
  stage.answer = async () => ({ ...TARGET });
  await stage.pass(5000, goesOn);
  assert.deepEqual([stage.sessions.length, stage.taken.at(-1)], [2, "first"]);
  stage.receiver.stop();
});

test("of several relays, the next one is used when one is lost, goes away or falls silent", async () => {
  const stage = new Stage();
  const relays = [TARGET.relay, "https://two/", "https://three/"];
  stage.answer = async () => ({ ...TARGET, relays });
  const used = () => stage.sessions.map(({ relay }) => relays.indexOf(relay));
  await stage.pass(500);
  stage.sessions[0].close();
  await stage.pass(500);
  assert.deepEqual(used(), [0, 1]);
  await stage.pass(500, () => stage.sessions[1].bring("second"));
  stage.sessions[1].onGoAway?.({ newSessionUri: "" });
  await stage.pass(100);
  stage.sessions[2].bring("third");
  assert.deepEqual([used(), stage.taken.at(-1)], [[0, 1, 2], "third"]);
  await stage.pass(WATCHDOG_MS + 1000);
  assert.deepEqual(used(), [0, 1, 2, 0]);
  // That one is refused, and the next attempt is not at the relay that is silent.
  stage.sessions[3].close();
  await stage.pass(5000);
  assert.deepEqual(used().slice(0, 5), [0, 1, 2, 0, 1]);
  stage.sessions[4].bring("fifth");
  assert.equal(stage.taken.at(-1), "fifth");
  stage.receiver.stop();
});
