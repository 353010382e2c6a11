// The end of a publisher, and its numbers, with mocks of relay and encoder.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Refused, RequestCode } from "../moqt/error.js";
import { Publication } from "../moqt/publication.js";
import { Session } from "../moqt/session.js";
import { Publisher } from "../player/publisher.js";
import { publishThroughAny } from "../player/roaming.js";

const TARGET = { relay: "https://relay/", certificateHashes: [], namespace: "live" };
const QUALITY = { width: 640, height: 360, bitrate: 600_000 };

/** An encoder that returns three bytes for each frame, at once. */
class PlayedEncoder {
  static async isConfigSupported() {
    return { supported: true };
  }

  /** @param {{ output: (chunk: any) => void }} handlers */
  constructor({ output }) {
    this.output = output;
    this.state = "unconfigured";
    this.encodeQueueSize = 0;
  }

  configure() {
    this.state = "configured";
  }

  /**
   * @param {{ timestamp: number }} frame
   * @param {{ keyFrame: boolean }} [options]
   */
  encode({ timestamp }, options) {
    this.output({ type: options?.keyFrame ? "key" : "delta", timestamp, byteLength: 3, copyTo: () => {} });
  }

  async flush() {}

  close() {
    this.state = "closed";
  }
}

/** An encoder that claims support, and then fails. */
class BrokenEncoder {
  static isConfigSupported = PlayedEncoder.isConfigSupported;

  /** @param {{ error: (error: Error) => void }} handlers */
  constructor({ error }) {
    this.error = error;
    this.state = "configured";
  }

  configure() {}

  encode() {
    this.error(new Error("out of memory"));
    this.state = "closed";
  }
}

/** A picture or an audio chunk. */
class Raw {
  /**
   * @param {Raw | undefined} _before
   * @param {{ timestamp: number }} init
   */
  constructor(_before, { timestamp }) {
    this.timestamp = timestamp;
    this.sampleRate = 48_000;
    this.numberOfChannels = 1;
    this.numberOfFrames = 960;
  }

  copyTo() {}
  close() {}
}

Object.assign(globalThis, {
  WebTransportError: class extends Error {},
  VideoEncoder: PlayedEncoder,
  AudioEncoder: PlayedEncoder,
  VideoFrame: Raw,
  AudioData: class extends Raw {
    /** @param {{ timestamp: number }} init */
    constructor(init) {
      super(undefined, init);
    }
  },
});

/** A source of frames captured at these times, in microseconds. */
class Source {
  /** @param {number[]} times */
  constructor(times) {
    this.times = [...times];
    this.isCancelled = false;
  }

  async read() {
    await new Promise(setImmediate);
    const timestamp = this.isCancelled ? undefined : this.times.shift();
    return timestamp === undefined ? { done: true, value: undefined } : { done: false, value: new Raw(undefined, { timestamp }) };
  }

  async cancel() {
    this.isCancelled = true;
  }
}

/** A session with a relay that answers PUBLISH as configured. */
class Played {
  /** @param {(name: string) => Promise<void>} answer rejected if the relay refuses the track */
  constructor(answer = async () => {}) {
    this.answer = answer;
    /** @type {Map<string, bigint[]>} the groups of each accepted track */
    this.groups = new Map();
    /** @type {string[]} */
    this.done = [];
    /** Tracks with a stream that was reset.
     * @type {string[]} */
    this.reset = [];
    /** What it says in its SETUP. */
    this.peer = { implementation: "weir/1.0" };
    /** The streams of video: group after the first one, and subgroup.
     * @type {string[]} */
    this.videoStreams = [];
    /** Whether it has accepted a namespace. */
    this.isAnnounced = false;
    this.offers = { add: (/** @type {{ trackName: Uint8Array }} */ { trackName }) => this.track(new TextDecoder().decode(trackName)) };
    /** Whether it wants the objects of accepted tracks. */
    this.isForwarding = true;
    /** @type {Map<string, { isOver: boolean, isForwarding: boolean, onForward: () => void }>} */
    this.publications = new Map();
    this.isClosed = false;
    /** @type {((goAway: { newSessionUri: string }) => void) | undefined} */
    this.onGoAway = undefined;
    /** @type {(reason: string) => void} */
    this.end = () => {};
    /** @type {Promise<string>} */
    this.closed = new Promise((resolve) => {
      this.end = resolve;
    });
  }

  /** @param {{ trackName: Uint8Array }} track */
  async publish({ trackName }) {
    const name = new TextDecoder().decode(trackName);
    await Promise.race([this.answer(name), this.closed.then((reason) => Promise.reject(new Error(reason)))]);
    return this.track(name);
  }

  async publishNamespace() {
    await this.answer("namespace");
    this.isAnnounced = true;
  }

  /** @param {string} name */
  track(name) {
    /** @type {bigint[]} */
    const groups = [];
    this.groups.set(name, groups);
    const publication = {
      isOver: false,
      isForwarding: this.isForwarding,
      onForward: () => {},
      open: (/** @type {bigint} */ group, /** @type {bigint} */ subgroup) => {
        if (groups.at(-1) !== group) groups.push(group);
        if (name === "video") this.videoStreams.push(`${group - groups[0]}.${subgroup}`);
        const reset = () => this.reset.push(name);
        return { waitingBytes: 0, write() {}, close() {}, reset };
      },
      done: async () => {
        this.done.push(name);
      },
    };
    this.publications.set(name, publication);
    return publication;
  }

  close() {
    this.isClosed = true;
    this.end("closed");
  }
}

/**
 * Returns a publisher on such a session.
 *
 * @param {Played} played
 * @param {number[]} times when frames and audio chunks are captured, in microseconds
 */
function publisher(played, times) {
  Session.connect = async () => /** @type {any} */ (played);
  const sources = { video: new Source(times), audio: new Source(times) };
  return { publisher: new Publisher(TARGET, QUALITY, /** @type {any} */ (sources)), sources };
}

const refused = () => new Refused(BigInt(RequestCode.UNAUTHORIZED), "not you", undefined, undefined);

test("groups are numbered from the time of day on, so that who begins anew counts on", async () => {
  const times = [0, 500_000, 1_000_000, 2_000_000];
  const played = new Played();
  const begin = BigInt(Date.now()) - 5n;
  assert.equal(await publisher(played, times).publisher.run(), "");
  const end = BigInt(Date.now()) + 5n;
  const first = played.groups.get("catalog")?.[0] ?? 0n;
  assert.ok(begin <= first && first <= end, `${first} lies between ${begin} and ${end}`);
  assert.deepEqual(played.groups.get("catalog"), [first]);
  assert.deepEqual(played.groups.get("video"), [first, first + 1n, first + 2n]);
  assert.deepEqual(played.groups.get("audio"), [first, first + 1n, first + 2n]);
  assert.deepEqual(played.done.toSorted(), ["audio", "catalog", "video"]);
});

test("a relay without PUBLISH gets the namespace, and one of others gets each group on one stream", async () => {
  const times = [0, 500_000, 1_000_000, 1_500_000, 2_000_000];
  const ours = new Played();
  assert.equal(await publisher(ours, times).publisher.run(), "");
  assert.deepEqual([ours.isAnnounced, ours.videoStreams], [false, ["0.0", "0.1", "1.0", "1.1", "2.0"]]);
  const other = new Played(async (name) => {
    if (name !== "namespace") throw new Refused(BigInt(RequestCode.NOT_SUPPORTED), "no", undefined, undefined);
  });
  other.peer.implementation = "another/1.0";
  assert.equal(await publisher(other, times).publisher.run(), "");
  assert.deepEqual([other.isAnnounced, other.videoStreams, other.reset], [true, ["0.0", "1.0", "2.0"], []]);
  assert.deepEqual(other.done.toSorted(), ["audio", "catalog", "video"]);
});

test("of a stream that the relay refuses nothing is left open, however many tracks it had taken", async () => {
  for (const bad of ["video", "audio", "catalog"]) {
    const played = new Played(async (name) => {
      if (name === bad) throw refused();
    });
    const { publisher: tried, sources } = publisher(played, [0, 1]);
    let isAccepted = false;
    await assert.rejects(tried.run(() => {
      isAccepted = true;
    }), Refused);
    assert.equal(played.isClosed, true, `the session in which ${bad} was refused`);
    assert.ok(sources.video.isCancelled && sources.audio.isCancelled);
    assert.equal(isAccepted, false);
    assert.deepEqual([...played.groups.values()].flat(), [], "nothing was sent");
  }
});

test("who stops while the relay has not answered yet is let go at once, and that is no failure", async () => {
  const played = new Played(() => new Promise(() => {}));
  const { publisher: tried, sources } = publisher(played, [0, 1]);
  const run = tried.run();
  await new Promise(setImmediate);
  tried.stop();
  assert.equal(await run, "");
  assert.equal(played.isClosed, true);
  assert.ok(sources.video.isCancelled && sources.audio.isCancelled);
});

test("who stops while the relay cannot be reached is let go at once, and a session that stands later is closed", async () => {
  for (const comes of [true, false]) {
    const played = new Played();
    const { publisher: tried, sources } = publisher(played, [0, 1]);
    /** @type {() => void} */
    let answer = () => {};
    Session.connect = () => new Promise((resolve, reject) => {
      answer = () => (comes ? resolve(/** @type {any} */ (played)) : reject(new Error("nobody is there")));
    });
    const run = tried.run();
    await new Promise(setImmediate);
    tried.stop();
    const late = new Promise((resolve) => setTimeout(() => resolve("still waiting"), 60_000).unref());
    assert.equal(await Promise.race([run, late]), "");
    assert.ok(sources.video.isCancelled && sources.audio.isCancelled);
    answer();
    await new Promise(setImmediate);
    assert.equal(played.isClosed, comes);
  }
});

test("a relay that wants the picture no more ends all of the stream, and is named", async () => {
  const played = new Played();
  const { publisher: tried, sources } = publisher(played, Array.from({ length: 1000 }, (_, place) => place * 1000));
  const run = tried.run();
  while (!played.publications.has("video")) await new Promise(setImmediate);
  Object.assign(played.publications.get("video") ?? {}, { isOver: true });
  assert.equal(await run, "The relay ended the stream.");
  assert.equal(played.isClosed, true);
  assert.ok(sources.video.isCancelled && sources.audio.isCancelled);
});

test("a relay that wants nothing gets nothing until it does, and then begins with a keyframe", async () => {
  const played = new Played();
  played.isForwarding = false;
  const { publisher: tried } = publisher(played, Array.from({ length: 1000 }, (_, place) => place * 1000));
  const run = tried.run();
  const groups = (/** @type {string} */ name) => played.groups.get(name)?.length ?? 0;
  const wants = (/** @type {boolean} */ isForwarding) => {
    for (const publication of played.publications.values()) {
      publication.isForwarding = isForwarding;
      publication.onForward();
    }
  };
  const steps = async () => {
    for (let step = 0; step < 20; step++) await new Promise(setImmediate);
    return ["video", "audio", "catalog"].map(groups);
  };
  assert.deepEqual(await steps(), [0, 0, 0]);
  wants(true);
  assert.deepEqual(await steps(), [1, 1, 1]);
  assert.equal(tried.counters.keyframes, 1);
  const { frames } = tried.counters;
  assert.ok(frames > 1);
  wants(false);
  assert.deepEqual([await steps(), played.reset.toSorted()], [[1, 1, 1], ["audio", "video"]]);
  assert.equal(tried.counters.frames, frames, "nothing is encoded that nobody wants");
  wants(true);
  assert.deepEqual([await steps(), tried.counters.keyframes], [[2, 2, 2], 2]);
  tried.stop();
  assert.equal(await run, "");
});

test("the rest of a group is reset at the next keyframe, even if the relay has all of it", async () => {
  const played = new Played();
  const { publisher: tried } = publisher(played, [0, 500_000, 1_000_000, 1_500_000]);
  assert.equal(await tried.run(), "");
  assert.deepEqual([played.groups.get("video")?.length, played.reset], [2, ["video"]]);
  assert.equal(tried.counters.streamsReset, 0, "nothing waited in the page");
});

test("what a relay says of FORWARD holds until it says something else", () => {
  const publication = new Publication(/** @type {any} */ (undefined), 0n, async () => {});
  let changes = 0;
  publication.onForward = () => {
    changes += 1;
  };
  /** @type {boolean[]} */
  const found = [];
  for (const forward of [undefined, true, false, undefined, false, true]) {
    publication.update(forward === undefined ? {} : { forward });
    found.push(publication.isForwarding);
  }
  assert.deepEqual([found, changes], [[true, true, false, false, false, true], 2]);
});

test("an encoder that gives up is named", async () => {
  const played = new Played();
  const { publisher: tried } = publisher(played, [0, 1, 2]);
  Object.assign(globalThis, { VideoEncoder: BrokenEncoder });
  try {
    assert.equal(await tried.run(), "The browser's video encoder failed: out of memory");
  } finally {
    Object.assign(globalThis, { VideoEncoder: PlayedEncoder });
  }
});

/**
 * Publishes through relays that are played in turn; an absent one cannot be reached.
 *
 * @param {(Played | undefined)[]} plays what each attempt finds
 * @param {string[]} relays
 */
function roaming(plays, relays) {
  /** @type {string[]} */
  const tried = [];
  Session.connect = async (relay) => {
    tried.push(relay);
    const played = plays.shift();
    if (!played) throw new Error(`${relay} cannot be reached`);
    return /** @type {any} */ (played);
  };
  const leaving = new AbortController();
  /** @type {string[]} */
  const said = [];
  const run = publishThroughAny({ ...TARGET, relays }, {
    make: (target) => new Publisher(target, QUALITY, /** @type {any} */ ({
      video: new Source(Array.from({ length: 100_000 }, (_, place) => place * 1000)),
    })),
    signal: leaving.signal,
    onAccepted: () => said.push("live"),
    onLost: (reason) => said.push(reason),
  });
  return { run, tried, said, leaving };
}

test("a publisher that loses its relay goes on at the next one, with higher groups", async () => {
  const [first, second] = [new Played(), new Played()];
  const { run, tried, said, leaving } = roaming([first, undefined, second], ["a", "b"]);
  while (!first.groups.get("video")?.length) await new Promise(setImmediate);
  first.isClosed = true;
  first.end("The connection was lost.");
  while (!second.groups.get("video")?.length) await new Promise(setImmediate);
  leaving.abort();
  assert.equal(await run, "");
  assert.deepEqual(tried, ["a", "b", "a"]);
  assert.deepEqual(said, ["live", "The connection was lost.", "Error: b cannot be reached", "live"]);
  const [before, after] = [first, second].map((played) => played.groups.get("video") ?? []);
  assert.ok((after[0] ?? 0n) > (before.at(-1) ?? 0n), `${after[0]} follows ${before.at(-1)}`);
});

test("a relay that goes away is left between two groups, and its tracks do not end", async () => {
  const [first, second] = [new Played(), new Played()];
  const { run, tried, said, leaving } = roaming([first, second], ["a", "b"]);
  while (!first.groups.get("video")?.length) await new Promise(setImmediate);
  first.onGoAway?.({ newSessionUri: "" });
  while (!second.groups.get("video")?.length) await new Promise(setImmediate);
  leaving.abort();
  assert.equal(await run, "");
  assert.deepEqual([tried, said], [["a", "b"], ["live", "The relay is going away.", "live"]]);
  assert.deepEqual([first.done, first.isClosed], [[], true]);
});

test("a relay that goes away is left for the one that it names, and that one's loss does not end the stream", async () => {
  const [first, second, third] = [new Played(), new Played(), new Played()];
  const { run, tried, leaving } = roaming([first, second, undefined, third], ["https://a/"]);
  while (!first.groups.get("video")?.length) await new Promise(setImmediate);
  first.onGoAway?.({ newSessionUri: "moqt://b/" });
  while (!second.groups.get("video")?.length) await new Promise(setImmediate);
  assert.deepEqual([first.done, first.isClosed], [[], true]);
  second.isClosed = true;
  second.end("The connection was lost.");
  while (!third.groups.get("video")?.length) await new Promise(setImmediate);
  leaving.abort();
  assert.equal(await run, "");
  assert.deepEqual(tried, ["https://a/", "https://b/", "https://a/", "https://b/"]);
});

test("a relay that goes away is not left if there is no other", async () => {
  const only = new Played();
  const { run, said, leaving } = roaming([only], ["a"]);
  while (!only.groups.get("video")?.length) await new Promise(setImmediate);
  only.onGoAway?.({ newSessionUri: "" });
  while ((only.groups.get("video")?.length ?? 0) < 3) await new Promise(setImmediate);
  leaving.abort();
  assert.equal(await run, "");
  assert.deepEqual([said, only.done.length], [["live"], 2]);
});

test("without any relay, each is tried once, and the last one's error is told", async () => {
  const { run, tried } = roaming([undefined, undefined], ["a", "b"]);
  await assert.rejects(run, /b cannot be reached/);
  assert.deepEqual(tried, ["a", "b"]);
});

test("a publisher with one relay ends when it is lost, and one that stops between two relays goes nowhere", async () => {
  const only = new Played();
  const alone = roaming([only], ["a"]);
  while (!only.groups.get("video")?.length) await new Promise(setImmediate);
  only.isClosed = true;
  only.end("The connection was lost.");
  assert.equal(await alone.run, "The connection was lost.");
  const between = roaming([undefined, new Played()], ["a", "b"]);
  while (between.said.length === 0) await new Promise(setImmediate);
  between.leaving.abort();
  assert.equal(await between.run, "");
  assert.deepEqual(between.tried, ["a"]);
});
