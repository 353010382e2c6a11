// A viewer with mocks of screen and relay.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { afterEach, mock, test } from "node:test";

import { nowUs } from "../player/now.js";
import { FRAME_PROPERTY, writeTag } from "../player/tag.js";
import { Viewer } from "../player/viewer.js";

const FRAME_US = 40_000;
/** @type {Viewer[]} */
const viewers = [];
/** The input of the decoders.
 * @type {string[]} */
const decoded = [];

afterEach(() => {
  for (const viewer of viewers.splice(0)) viewer.stop();
  decoded.length = 0;
  mock.restoreAll();
});

class PlayedDecoder {
  static async isConfigSupported() {
    return { supported: true };
  }

  constructor() {
    this.state = "unconfigured";
    this.decodeQueueSize = 0;
  }

  configure() {
    this.state = "configured";
  }

  /** @param {{ timestamp: number, kind: string }} chunk */
  decode({ timestamp, kind }) {
    decoded.push(`${kind} ${timestamp / FRAME_US}`);
  }

  reset() {
    this.state = "unconfigured";
  }

  close() {
    this.state = "closed";
  }
}

/** @param {string} kind */
const chunkOf = (kind) =>
  class {
    /** @param {object} init */
    constructor(init) {
      Object.assign(this, init, { kind });
    }
  };

Object.assign(globalThis, {
  VideoDecoder: PlayedDecoder,
  AudioDecoder: PlayedDecoder,
  EncodedVideoChunk: chunkOf("video"),
  EncodedAudioChunk: chunkOf("audio"),
});

/**
 * Returns a viewer that has connected.
 *
 * @param {string | undefined} strategy in the catalog
 */
async function watching(strategy = "weir") {
  const canvas = /** @type {any} */ ({ getContext: () => ({ drawImage: () => {} }) });
  const viewer = new Viewer(canvas, { join: "next", buffer: "strategy" }, {
    target: async () => ({ relay: "https://relay/", certificateHashes: [], namespace: "live" }),
    onState: () => {},
    onProblem: (reason) => assert.fail(reason),
  });
  viewers.push(viewer);
  const { handlers } = viewer.receiver;
  handlers.onPlan(planOf(strategy), "connected");
  await new Promise(setImmediate);
  return { viewer, handlers };
}

/**
 * @param {string | undefined} strategy
 * @returns {import("../player/catalog.js").Plan}
 */
function planOf(strategy) {
  return {
    strategy,
    video: [{ name: "video", media: "video", packaging: "loc", codec: "avc1.64001f", init: [] }],
    audio: { name: "audio", media: "audio", packaging: "loc", codec: "opus", init: [] },
  };
}

/** The tracks of a connection, as a receiver requests them.
 * @param {import("../player/receiver.js").Handlers} handlers */
function tracks(handlers) {
  const { video, audio } = planOf(undefined);
  return { video: handlers.sinkOf(video[0], 0), audio: handlers.sinkOf(/** @type {any} */ (audio), -1) };
}

/** A publisher whose frames are available when they arrive, in groups of ten. */
class Publisher {
  /** @param {number} group of its first frames */
  constructor(group) {
    this.group = group;
    this.beganUs = nowUs();
  }

  /**
   * @param {number} number the number of a frame
   * @returns {any} the object of the frame
   */
  object(number) {
    const place = number % 10;
    const tag = writeTag({
      kind: place === 0 ? "I" : "P",
      isDisposable: false,
      references: place,
      availableUs: this.beganUs + number * FRAME_US,
      decodeUs: number * FRAME_US,
      presentationUs: number * FRAME_US,
      durationUs: FRAME_US,
      number,
    });
    return {
      group: BigInt(this.group + Math.floor(number / 10)),
      id: BigInt(place),
      properties: [{ type: FRAME_PROPERTY, bytes: tag }],
      payload: Uint8Array.of(1, 2, 3),
    };
  }
}

test("a stream whose catalog names no strategy is not played by that of the one before", async () => {
  const { viewer, handlers } = await watching("baseline");
  assert.deepEqual([viewer.strategy, viewer.player.settings.inSequence], ["baseline", true]);
  for (const strategy of [undefined, "toString", "unknown"]) {
    handlers.onPlan(planOf("combined"), "catalog");
    handlers.onPlan(planOf(strategy), "catalog");
    assert.deepEqual([viewer.strategy, viewer.player.settings.reorders], ["weir", false]);
  }
});

test("in a page that is not seen nothing is decoded, neither picture nor sound", async () => {
  const { viewer, handlers } = await watching();
  // As after the user has enabled audio.
  Object.defineProperty(viewer.audio, "isRunning", { get: () => true });
  const { video, audio } = tracks(handlers);
  const publisher = new Publisher(1);
  const sound = (/** @type {number} */ id) => ({ ...publisher.object(id), properties: [{ type: 0x10n, int: BigInt(id * FRAME_US) }] });
  video.onObject(publisher.object(0));
  audio.onObject(sound(0));
  assert.deepEqual(decoded.toSorted(), ["audio 0", "video 0"]);
  viewer.setHidden(true);
  for (let number = 1; number < 10; number++) {
    video.onObject(publisher.object(number));
    audio.onObject(sound(number));
  }
  assert.equal(decoded.length, 2);
  assert.equal(viewer.dropped.hidden, 9);
  viewer.setHidden(false);
  video.onObject(publisher.object(10));
  audio.onObject(sound(10));
  assert.deepEqual(decoded.slice(2).toSorted(), ["audio 10", "video 10"], "it goes on at a keyframe");
});

test("another connection to the same publisher goes on where the one before is", async () => {
  const { viewer, handlers } = await watching();
  const publisher = new Publisher(1);
  const before = tracks(handlers);
  for (let number = 0; number < 13; number++) before.video.onObject(publisher.object(number));
  const { restarts } = viewer;
  assert.equal(handlers.onPlan(planOf("weir"), "handover"), true);
  const after = tracks(handlers);
  // The new connection begins with the group that the other one has delivered in part.
  for (let number = 10; number < 14; number++) after.video.onObject(publisher.object(number));
  before.video.onObject(publisher.object(13));
  before.video.onObject(publisher.object(14));
  const { duplicates, frames } = viewer.records;
  assert.deepEqual([viewer.restarts - restarts, duplicates, frames.map(({ number }) => number)], [0, 4, [...Array(15).keys()]]);
  assert.deepEqual([viewer.catalogsFollowed, viewer.publishersFollowed, viewer.framesOfFormer], [0, 0, 0]);
});

test("another connection to another publisher begins anew, and what the former still brings is left out", async () => {
  const { viewer, handlers } = await watching();
  const before = tracks(handlers);
  const publisher = new Publisher(1000);
  publisher.beganUs -= 3_600_000_000;
  for (let number = 90_000; number < 90_010; number++) before.video.onObject(publisher.object(number));
  const { restarts } = viewer;
  handlers.onPlan(planOf("weir"), "handover");
  const after = tracks(handlers);
  const other = new Publisher(5);
  for (let number = 0; number < 3; number++) {
    after.video.onObject(other.object(number));
    before.video.onObject(publisher.object(90_010 + number));
  }
  assert.deepEqual([viewer.restarts - restarts, viewer.publishersFollowed, viewer.framesOfFormer], [1, 1, 3]);
  assert.deepEqual(viewer.records.frames.slice(-4).map(({ group, number }) => [group, number]), [[10_000, 90_009], [5, 90_010], [5, 90_011], [5, 90_012]]);
});

test("a publisher that begins anew on the same tracks is followed, by every way of delivery", async () => {
  for (const strategy of ["baseline", "deprioritize-b", "skip", "combined", "weir"]) {
    const { viewer, handlers } = await watching(strategy);
    const { video } = tracks(handlers);
    const former = new Publisher(1000);
    former.beganUs -= 10_000_000;
    // The change falls into the middle of a group, which nobody ends.
    for (let number = 0; number < 65; number++) {
      video.onObject(former.object(number));
      if (number % 10 === 9) video.onStreamEnd?.(former.object(number).group);
    }
    const { restarts } = viewer;
    const next = new Publisher(5000);
    for (let number = 0; number < 12; number++) {
      video.onObject(next.object(number));
      // Frames of the former publisher may arrive later.
      if (number < 2) video.onObject(former.object(65 + number));
      if (number === 9) video.onStreamEnd?.(5000n);
    }
    assert.deepEqual([viewer.restarts - restarts, viewer.publishersFollowed, viewer.framesOfFormer], [1, 1, 2], strategy);
    const places = viewer.records.frames.slice(-12).map(({ group, number }) => [group, number]);
    assert.deepEqual(places, Array.from({ length: 12 }, (_, place) => [place < 10 ? 5000 : 5001, 65 + place]), strategy);
  }
});

test("a publisher that begins anew with the same numbers is followed, and nothing of it taken for what came before", async () => {
  const { viewer, handlers } = await watching();
  const { video } = tracks(handlers);
  const former = new Publisher(0);
  former.beganUs -= 10_000_000;
  for (let number = 0; number < 25; number++) video.onObject(former.object(number));
  const next = new Publisher(0);
  for (let number = 0; number < 12; number++) video.onObject(next.object(number));
  const { duplicates, frames } = viewer.records;
  assert.deepEqual([viewer.publishersFollowed, duplicates, frames.map(({ number }) => number)], [1, 0, [...Array(37).keys()]]);
});

test("of two publishers that send at once one is heard until it is silent", async () => {
  for (const strategy of ["baseline", "weir"]) {
    const { viewer, handlers } = await watching(strategy);
    Object.defineProperty(viewer.audio, "isRunning", { get: () => true });
    const { video, audio } = tracks(handlers);
    const began = performance.now();
    let passed = 0;
    mock.method(performance, "now", () => began + passed);
    mock.method(Date, "now", () => performance.timeOrigin + began + passed);
    const first = new Publisher(1000);
    first.beganUs -= 10_000_000;
    const second = new Publisher(11_000);
    second.beganUs += FRAME_US / 2;
    /** @type {string[]} */
    const heard = [];
    const bring = (/** @type {string} */ name, /** @type {any} */ object) => {
      const before = viewer.framesOfFormer;
      video.onObject(object);
      audio.onObject(object);
      if (object.id === 9n) video.onStreamEnd?.(object.group);
      if (viewer.framesOfFormer === before && heard.at(-1) !== name) heard.push(name);
    };
    for (let number = 0; number < 150; number++) {
      passed = (number * FRAME_US) / 1000;
      bring("first", first.object(250 + number));
      passed += FRAME_US / 4000;
      if (number < 50) bring("second", second.object(number));
    }
    mock.restoreAll();
    // The player changes to the second publisher with its first frame, and back two seconds after its last.
    assert.deepEqual([heard, viewer.publishersFollowed, viewer.framesOfFormer], [["first", "second", "first"], 2, 49 + 50], strategy);
    const numbers = (/** @type {number} */ from, /** @type {number} */ count) => Array.from({ length: count }, (_, place) => from + place);
    const expected = [250, ...numbers(0, 50), ...numbers(350, 50)];
    assert.deepEqual(viewer.records.frames.map(({ presentation_us }) => presentation_us / FRAME_US), expected);
    assert.deepEqual(decoded.splice(0).filter((text) => text.startsWith("audio")), expected.map((number) => `audio ${number}`));
  }
});

test("the sound of two connections is that of the newer one", async () => {
  const { viewer, handlers } = await watching();
  Object.defineProperty(viewer.audio, "isRunning", { get: () => true });
  const sound = (/** @type {number} */ id) => /** @type {any} */ ({ group: 1n, id: BigInt(id), properties: [{ type: 0x10n, int: BigInt(id * FRAME_US) }], payload: Uint8Array.of(1) });
  const before = tracks(handlers);
  for (const id of [0, 1]) before.audio.onObject(sound(id));
  handlers.onPlan(planOf("weir"), "handover");
  const after = tracks(handlers);
  before.audio.onObject(sound(2));
  for (const id of [2, 3]) after.audio.onObject(sound(id));
  before.audio.onObject(sound(4));
  after.audio.onObject(sound(4));
  assert.deepEqual(decoded, ["audio 0", "audio 1", "audio 2", "audio 3", "audio 4"]);
});

test("all B-frames of others' LOC are decoded, which says only when they are shown", async () => {
  const { viewer, handlers } = await watching();
  const { video } = tracks(handlers);
  // NAL units of one slice each; no other frame needs the B-frames.
  const samples = { I: [0x65, 0x88], P: [0x41, 0xc0], B: [0x01, 0xa0] };
  const frames = /** @type {const} */ ([["I", 0], ["P", 4], ["B", 1], ["B", 2], ["B", 3]]);
  frames.forEach(([kind, place], id) => {
    video.onObject(/** @type {any} */ ({
      group: 1n,
      id: BigInt(id),
      properties: [{ type: 0x10n, int: BigInt(place * FRAME_US) }],
      payload: Uint8Array.of(0, 0, 0, 2, ...samples[kind]),
    }));
  });
  assert.deepEqual(decoded, ["video 0", "video 4", "video 1", "video 2", "video 3"]);
  assert.equal(viewer.video.counters.lateForDecoder, 0);
  assert.deepEqual(viewer.records.frames.map(({ kind }) => kind).join(""), "IPBBB");
});

test("what is exported has the form of what the player without a screen writes", async () => {
  const form = JSON.parse(readFileSync(new URL("../../vectors/live/report.json", import.meta.url), "utf8"));
  const { viewer, handlers } = await watching("combined");
  const publisher = new Publisher(1);
  const { video } = tracks(handlers);
  for (let number = 0; number < 3; number++) video.onObject(publisher.object(number));
  video.onObject({ ...publisher.object(3), properties: [] });
  handlers.onUseless();
  handlers.onPlan(planOf("weir"), "catalog");
  const report = /** @type {any} */ (JSON.parse(JSON.stringify(viewer.export())));
  const keys = (/** @type {object} */ value) => Object.keys(value).toSorted();
  assert.deepEqual(keys(report), form.report);
  assert.deepEqual(keys(report.tracks[0]), form.track);
  assert.deepEqual(keys(report.figures), form.figures);
  assert.deepEqual(keys(report.frames[0]), form.frame);
  assert.equal(report.schema, form.schema);
  assert.deepEqual([report.strategy, report.buffer, report.catalogs_followed, report.objects_unknown], ["weir", "strategy", 1, 2]);
  handlers.onPlan(planOf(undefined), "connected");
  assert.equal(viewer.export().strategy, null, "as the player without a screen says of others' streams");
});
