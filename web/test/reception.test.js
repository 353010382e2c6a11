// The requests of a reception, to a mock relay.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { utf8 } from "../moqt/cursor.js";
import { DoneCode, Refused, RequestCode } from "../moqt/error.js";
import { Session } from "../moqt/session.js";
import { find, parse } from "../player/boxes.js";
import { Reception } from "../player/reception.js";

const FILE = new Uint8Array(readFileSync(new URL("../../crates/live/tests/media/audio-video.mp4", import.meta.url)));
const CATALOG = utf8(JSON.stringify({
  version: "draft-01",
  weirStrategy: "skip",
  tracks: [{ name: "video", packaging: "loc", role: "video", codec: "avc1.64001f" }],
}));

function segment() {
  const moov = find(parse(FILE), "moov");
  assert.ok(moov);
  return FILE.subarray(0, moov.at + moov.body.length);
}

/** A session with a relay whose content is what `held` returns, which depends on earlier requests. */
class Played {
  /** @param {(name: string, asked: string[]) => Uint8Array | "taken" | undefined} held */
  constructor(held) {
    this.held = held;
    /** @type {string[]} */
    this.asked = [];
    /** The parameters of accepted subscriptions, as text.
     * @type {string[]} */
    this.wanted = [];
    /** Whether accepted tracks already have objects. */
    this.isRunning = false;
    /** @type {Map<string, import("../moqt/subscription.js").Sink>} */
    this.sinks = new Map();
    this.isClosed = false;
    this.closed = new Promise((resolve) => {
      this.end = resolve;
    });
  }

  /**
   * @param {{ trackName: Uint8Array }} track
   * @param {any} parameters
   * @param {import("../moqt/subscription.js").Sink} sink
   */
  async subscribe({ trackName }, parameters, sink) {
    const name = new TextDecoder().decode(trackName);
    this.asked.push(name);
    const found = this.held(name, this.asked);
    if (found === undefined) throw new Refused(BigInt(RequestCode.DOES_NOT_EXIST), "nobody publishes it", undefined, undefined);
    this.sinks.set(name, sink);
    if (found !== "taken") sink.onObject(/** @type {any} */ ({ payload: found }));
    else this.wanted.push(`${name} ${parameters.filter.type}`);
    const largestObject = { group: 7n, object: 3n };
    return { name, ok: { parameters: this.isRunning && found === "taken" ? { largestObject } : {} }, cancel: () => {} };
  }

  /**
   * @param {any} subscription
   * @param {bigint} groups
   */
  async fetchJoining({ name }, groups) {
    this.wanted.push(`${name} FETCH ${groups} groups before`);
  }

  close() {
    this.isClosed = true;
    this.end?.("closed");
  }
}

/**
 * Runs a reception on such a session until it has subscribed.
 *
 * @param {Played} played
 * @param {"next" | "current"} [join]
 */
async function receive(played, join = "next") {
  Session.connect = async () => /** @type {any} */ (played);
  /** @type {import("../player/catalog.js").Plan[]} */
  const plans = [];
  /** @type {string[]} */
  const states = [];
  /** @type {() => void} */
  let resolve = () => {};
  const next = () => new Promise((done) => {
    resolve = () => done(undefined);
  });
  const reception = new Reception({ relay: "https://relay/", certificateHashes: [], namespace: "live" }, join, {
    onPlan: (plan) => plans.push(plan),
    sinkOf: () => ({ onObject: () => {} }),
    onState: (state) => {
      states.push(state);
      if (state === "subscribed") resolve();
    },
    onGoAway: () => {},
  });
  const subscribed = next();
  reception.run();
  await subscribed;
  return { reception, plans, states, next };
}

test("of a publisher that comes between two questions the catalog is read, not the init segment alone", async () => {
  const played = new Played((name, asked) => {
    if (asked.length === 1) return undefined;
    return { catalog: CATALOG, init: segment() }[name] ?? "taken";
  });
  const { plans } = await receive(played);
  assert.deepEqual(played.asked, ["catalog", "init", "catalog", "video"]);
  assert.deepEqual(plans.map(({ strategy, video }) => [strategy, video[0].packaging]), [["skip", "loc"]]);
  played.close();
});

test("a publisher of the thesis has no catalog", async () => {
  const played = new Played((name) => (name === "catalog" ? undefined : name === "init" ? segment() : "taken"));
  const { plans } = await receive(played);
  assert.deepEqual(plans.map(({ strategy, video }) => [strategy, video[0].packaging]), [["weir", "cmaf"]]);
  played.close();
});

test("a publisher that leaves ends all its tracks, and is waited for once", async () => {
  const played = new Played((name) => ({ catalog: CATALOG, init: segment() })[name] ?? "taken");
  const { states, next } = await receive(played);
  const again = next();
  const sink = played.sinks.get("catalog");
  sink?.onDone?.(0, "");
  sink?.onDone?.(0, "");
  await again;
  assert.deepEqual(states, ["subscribed", "ended", "subscribed"]);
  assert.deepEqual(played.asked, ["catalog", "video", "catalog", "video"]);
  played.close();
});

test("a catalog that changes nothing of what is played interrupts nothing, until a track has ended", async () => {
  const played = new Played((name) => ({ catalog: CATALOG })[name] ?? "taken");
  const { plans, next } = await receive(played);
  const say = (/** @type {object} */ more) => {
    const catalog = JSON.parse(new TextDecoder().decode(CATALOG));
    Object.assign(catalog.tracks[0], more);
    played.sinks.get("catalog")?.onObject(/** @type {any} */ ({ payload: utf8(JSON.stringify(catalog)) }));
  };
  // moq-cli repeats its catalog whenever its estimate of the bit rate improves.
  say({ bitrate: 400_000 });
  await new Promise(setImmediate);
  assert.deepEqual(played.asked, ["catalog", "video"]);
  const again = next();
  played.sinks.get("video")?.onDone?.(DoneCode.TRACK_ENDED, "");
  say({ bitrate: 400_001 });
  await again;
  assert.deepEqual(played.asked, ["catalog", "video", "video"]);
  const other = next();
  say({ codec: "avc1.640028" });
  await other;
  assert.equal(plans.length, 3);
  played.close();
});

test("a track that the relay ends before its publisher does is asked for again, after a while", async (context) => {
  for (const [code, asked] of /** @type {[number, string[]][]} */ ([
    [DoneCode.MALFORMED_TRACK, ["catalog", "video", "video"]],
    [DoneCode.TOO_FAR_BEHIND, ["catalog", "video", "video"]],
    [DoneCode.TRACK_ENDED, ["catalog", "video"]],
    [DoneCode.GOING_AWAY, ["catalog", "video"]],
  ])) {
    const played = new Played((name) => ({ catalog: CATALOG })[name] ?? "taken");
    const { states } = await receive(played);
    context.mock.timers.enable({ apis: ["setTimeout"] });
    played.sinks.get("video")?.onDone?.(code, "");
    context.mock.timers.tick(999);
    assert.deepEqual(played.asked, ["catalog", "video"]);
    context.mock.timers.tick(1001);
    context.mock.timers.reset();
    await new Promise(setImmediate);
    assert.deepEqual(played.asked, asked, String(code));
    assert.deepEqual(states, asked.length === 2 ? ["subscribed", "ended"] : ["subscribed", "ended", "subscribed"]);
    played.close();
  }
});

test("who joins with the next group asks for that, who joins with the present one fetches what it has of it", async () => {
  const tracks = [
    { name: "video", packaging: "loc", role: "video", codec: "avc1.64001f" },
    { name: "audio", packaging: "loc", role: "audio", codec: "opus" },
  ];
  const wanted = async (/** @type {"next" | "current"} */ join, /** @type {boolean} */ isRunning) => {
    const played = new Played((name) => (name === "catalog" ? utf8(JSON.stringify({ tracks })) : "taken"));
    played.isRunning = isRunning;
    await receive(played, join);
    played.close();
    return played.wanted;
  };
  assert.deepEqual(await wanted("next", true), ["video NextGroupStart", "audio NextGroupStart"]);
  // Audio begins with the next group in either case.
  assert.deepEqual(await wanted("current", true), ["video LargestObject", "audio NextGroupStart", "video FETCH 0 groups before"]);
  assert.deepEqual(await wanted("current", false), ["video LargestObject", "audio NextGroupStart"], "of a track without an object nothing is fetched");
});
