// How frames enter the decoder, with a mock decoder.

import assert from "node:assert/strict";
import { test } from "node:test";

import { withReorderFrames } from "../player/h264.js";
import { VideoOutput, isBaseOnlyAfter } from "../player/video.js";

/** From x264 with consecutive B-frames, which declares 1. */
const DESCRIPTION = new Uint8Array(Buffer.from("0164000cffe1001a6764000cacd101419f9f011000000300100000030300f142912001000568ebecb22cfdf8f800", "hex"));
const FRAME_US = 40_000;

test("any B-frame says that pictures are put in order, also one that others need", () => {
  for (const [others, bs, before, after] of /** @type {const} */ ([
    [4, 0, false, true],
    [4, 0, true, true],
    [4, 6, true, false],
    [4, 1, true, false],
    [1, 1, true, false],
    [1, 0, false, false],
    [1, 0, true, true],
    [0, 0, true, true],
  ])) {
    assert.equal(isBaseOnlyAfter({ others, bs }, before), after, `${others} others, ${bs} B-frames, before that ${before}`);
  }
});

/** A decoder that returns its input. */
class PlayedDecoder {
  /** @type {PlayedDecoder | undefined} */
  static last = undefined;

  /** @param {{ output: (picture: any) => void }} handlers */
  constructor({ output }) {
    this.output = output;
    this.state = "unconfigured";
    this.decodeQueueSize = 0;
    /** @type {string[]} its configurations, and the times of its frames */
    this.log = [];
    PlayedDecoder.last = this;
  }

  /** @param {{ description: Uint8Array }} config */
  configure({ description }) {
    this.state = "configured";
    const isWhole = Buffer.from(description).equals(Buffer.from(DESCRIPTION));
    const isNone = Buffer.from(description).equals(Buffer.from(withReorderFrames(DESCRIPTION, 0)));
    this.log.push(isWhole ? "in order" : isNone ? "as they come" : "unknown");
  }

  /** @param {{ timestamp: number }} chunk */
  decode({ timestamp }) {
    this.log.push(`${timestamp / FRAME_US}`);
    this.output({ timestamp, displayWidth: 2, displayHeight: 2, close: () => {} });
  }

  reset() {
    this.state = "unconfigured";
  }

  close() {
    this.state = "closed";
  }
}

function screen() {
  Object.assign(globalThis, {
    VideoDecoder: PlayedDecoder,
    EncodedVideoChunk: class {
      /** @param {object} init */
      constructor(init) {
        Object.assign(this, init);
      }
    },
  });
  const canvas = /** @type {any} */ ({ width: 0, height: 0, getContext: () => ({ drawImage: () => {} }) });
  const video = new VideoOutput(canvas, () => {});
  video.plan = { name: "video", media: "video", packaging: "loc", codec: "avc1.64000c", init: [] };
  /** @type {number[]} */
  const drawn = [];
  let decodeUs = 0;
  /**
   * Pushes a group of frames in decoding order.
   *
   * @param {number} group
   * @param {string} frames kind and index: `b` for a disposable B-frame
   */
  const push = (group, frames) => {
    let references = 0;
    for (const [letter, place] of frames.split(" ").map((text) => [text[0], Number(text.slice(1))])) {
      const presentationUs = (group * 8 + Number(place)) * FRAME_US;
      const isDisposable = letter === "b";
      const tag = { kind: String(letter).toUpperCase(), isDisposable, references, decodeUs, presentationUs, durationUs: FRAME_US, availableUs: 0, number: 0 };
      decodeUs += FRAME_US;
      if (!isDisposable) references += 1;
      const description = letter === "I" ? { description: DESCRIPTION } : {};
      video.push(/** @type {any} */ ({ frame: { tag, isTagged: true, data: Uint8Array.of(1), bytes: 1, ...description }, group, onShown: () => drawn.push(presentationUs / FRAME_US) }));
    }
    video.feed(decodeUs);
    for (let place = 0; place < 8; place++) video.show((group * 8 + place) * FRAME_US);
  };
  return { video, push, drawn };
}

test("where the base layer comes alone pictures are decoded as they come, until B-frames come again", () => {
  const { video, push, drawn } = screen();
  push(0, "I0 P4 b1 b2 b3 P7 b5 b6");
  push(1, "I0 P4 P7");
  push(2, "I0 P4 P7");
  assert.equal(video.isBaseOnly, true, "since the group before brought no B-frame");
  push(3, "I0 P4 b1 b2 b3 P7 b5 b6");
  push(4, "I0 P4 b1 b2 b3 P7 b5 b6");
  assert.equal(video.isBaseOnly, false);
  assert.deepEqual(PlayedDecoder.last?.log, [
    "in order", "0", "4", "1", "2", "3", "7", "5", "6",
    "8", "12", "15",
    "as they come", "16", "20", "23",
    // A decoder without reordering drops those in between, up to a keyframe.
    "24", "28", "31",
    "in order", "32", "36", "33", "34", "35", "39", "37", "38",
  ]);
  assert.deepEqual(drawn.slice(-8), [32, 33, 34, 35, 36, 37, 38, 39]);
  assert.equal(video.counters.baseOnly, 2);
});

test("of a pyramid without the B-frames that no other needs, the others are put in order", () => {
  const { video, push } = screen();
  push(0, "I0 P4 B2 b1 b3 P7 b5 b6");
  push(1, "I0 P4 B2 P7");
  push(2, "I0 P4 B2 P7");
  assert.equal(video.isBaseOnly, false);
  assert.deepEqual(PlayedDecoder.last?.log.filter((entry) => entry.includes("order") || entry.includes("come")), ["in order"]);
});
