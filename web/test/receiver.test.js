// How a stream is kept coming, in a time and with relays that are played here.

import assert from "node:assert/strict";
import { afterEach, mock, test } from "node:test";

import { utf8 } from "../moqt/cursor.js";
import { Session } from "../moqt/session.js";
import { HANDOVER_MS, LINGER_MS, Receiver, WATCHDOG_MS } from "../player/receiver.js";

const CATALOG = utf8(JSON.stringify({ tracks: [{ name: "video", packaging: "loc", role: "video", codec: "avc1.64001f" }] }));
const STEP_MS = 50;

afterEach(() => {
  mock.timers.reset();
  mock.restoreAll();
});

/** A session with a relay that has a catalog and a track with video. */
class PlayedSession {
  /** @param {string} relay */
  constructor(relay) {
    this.relay = relay;
    this.isClosed = false;
    this.closed = new Promise((resolve) => {
      this.end = resolve;
    });
    /** @type {import("../moqt/subscription.js").Sink | undefined} */
    this.sink = undefined;
    /** @type {((goAway: { newSessionUri: string }) => void) | undefined} */
    this.onGoAway = undefined;
  }

  /**
   * @param {{ trackName: Uint8Array }} track
   * @param {unknown} _parameters
   * @param {import("../moqt/subscription.js").Sink} sink
   */
  async subscribe({ trackName }, _parameters, sink) {
    if (new TextDecoder().decode(trackName) === "catalog") sink.onObject(/** @type {any} */ ({ payload: CATALOG }));
    else this.sink = sink;
    return { ok: { parameters: {} }, cancel: () => {} };
  }

  /** @param {string} name of an object that comes */
  bring(name) {
    const object = /** @type {any} */ ({ name, group: 1n, id: 0n, properties: [], payload: new Uint8Array(1) });
    if (this.sink?.onHead?.(object) !== false) this.sink?.onObject(object);
  }

  close() {
    this.isClosed = true;
    this.end?.("it was closed");
  }
}

/** A receiver, the clock it goes by, and the relays it knows. */
class Stage {
  constructor() {
    this.now = 0;
    mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
    mock.method(performance, "now", () => this.now);
    mock.method(Math, "random", () => 0.5);
    /** When it connected, in milliseconds.
     * @type {number[]} */
    this.tries = [];
    /** @type {PlayedSession[]} */
    this.sessions = [];
    /** Whether relays take no connection. */
    this.isDown = false;
    Session.connect = async (relay) => {
      this.tries.push(this.now);
      if (this.isDown) throw new Error("nobody is there");
      const session = new PlayedSession(relay);
      this.sessions.push(session);
      return /** @type {any} */ (session);
    };
    /** @type {string[]} */
    this.states = [];
    /** @type {string[]} */
    this.occasions = [];
    /** The names of the objects that were taken.
     * @type {string[]} */
    this.taken = [];
    this.receiver = new Receiver("next", {
      target: async () => ({ relay: "https://relay/", certificateHashes: [], namespace: "live" }),
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
   * Lets time pass.
   *
   * @param {number} ms
   * @param {() => void} [each] what happens in each step
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

  /** @returns {number[]} the times between tries */
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
    // The next one is a good one.
    await stage.pass(11_000, () => stage.sessions[place + 1].bring("object"));
  }
  stage.receiver.stop();
});

test("without an object for two seconds a second connection is tried, and kept if it brings something", async () => {
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
  assert.deepEqual(stage.states, ["connecting"]);
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
  assert.ok(pauses[0] <= 3000 && pauses[5] >= 10_000 && pauses[5] <= 10_500, `${pauses}`);
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
  assert.deepEqual([stage.sessions.length, stage.states], [2, ["connecting"]]);
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
  // The relay sends that one away as well, and then closes the first.
  third.onGoAway?.({ newSessionUri: "" });
  assert.equal(third.isClosed, true);
  await stage.pass(1500, goesOn);
  assert.equal(stage.sessions.length, 4);
  stage.sessions[3].bring("fourth");
  assert.equal(stage.taken.at(-1), "fourth");
  assert.equal(stage.receiver.counters.goAways, 2);
  stage.receiver.stop();
});
