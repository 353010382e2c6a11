/**
 * Decodes frames in time, and draws them when they are due.
 *
 * Frames enter the decoder in decoding order, shortly before their time, so that frames that arrive out of order can
 * still be sorted. A decoder holds pictures back for reordering. If only the base layer arrives, it would wait for
 * B-frames that never come, so it is configured to hold back none. This changes at keyframes only.
 */

import { withReorderFrames } from "./h264.js";

/** How long before its decode time a frame may enter the decoder, in microseconds of media time. */
const LEAD_US = 120_000;
/** Frames in the decoder. Beyond this, the decoder is too slow, and decoding continues at the next keyframe. */
const DECODING_MAX = 48;
/** Decoded pictures that wait to be shown. Beyond this, the oldest is dropped. */
const PICTURES_MAX = 64;
/** Frames that wait to be decoded. Beyond this, the oldest is dropped. */
const WAITING_MAX = 3600;

/**
 * @typedef {object} Queued a frame on its way through the decoder
 * @property {import("./packaging.js").MediaFrame} frame
 * @property {number} group
 * @property {() => void} onShown called when it is on the screen
 *
 * @typedef {object} Came the frames of a group after its keyframe that have arrived
 * @property {number} others frames that are not B-frames
 * @property {number} bs B-frames, disposable or not
 *
 * @typedef {object} VideoCounters
 * @property {number} decoded pictures from the decoder
 * @property {number} drawn pictures on the screen
 * @property {number} unreferenced frames that were not decoded because frames they need are missing
 * @property {number} lateForDecoder frames that arrived after later ones had been decoded
 * @property {number} overloads times that the decoder was too slow
 * @property {number} errors errors of the decoder
 * @property {number} baseOnly groups decoded without waiting for B-frames
 */

/** The decoder and the canvas. */
export class VideoOutput {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {(reason: string) => void} onProblem called with a text for the viewer
   */
  constructor(canvas, onProblem) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.onProblem = onProblem;
    /** @type {VideoDecoder | undefined} */
    this.decoder = undefined;
    /** @type {import("./catalog.js").TrackPlan | undefined} */
    this.plan = undefined;
    /** The decoder configuration in the stream.
     * @type {Uint8Array | undefined} */
    this.description = undefined;
    /** In the order of decoding.
     * @type {Queued[]} */
    this.waiting = [];
    /** @type {Map<number, Queued>} frames in the decoder, by presentation time */
    this.decoding = new Map();
    /** @type {Map<number, { picture: VideoFrame, queued: Queued }>} by presentation time */
    this.pictures = new Map();
    /** Presentation time of the frame that is due on the screen.
     * @type {number} */
    this.dueUs = -Infinity;
    /** @type {number} */
    this.drawnUs = -Infinity;
    this.needsKey = true;
    /** The group that is being decoded, how many of its reference frames were decoded, and what has arrived of it.
     * @type {{ group: number, references: number, decodeUs: number } & Came | undefined} */
    this.chain = undefined;
    this.isBaseOnly = false;
    /** Why nothing can be decoded, in words for people.
     * @type {string | undefined} */
    this.problem = undefined;
    /** @type {VideoCounters} */
    this.counters = { decoded: 0, drawn: 0, unreferenced: 0, lateForDecoder: 0, overloads: 0, errors: 0, baseOnly: 0 };
  }

  /**
   * Changes to another stream.
   *
   * @param {import("./catalog.js").TrackPlan} plan
   */
  async setPlan(plan) {
    this.plan = plan;
    this.description = plan.description;
    this.restart();
    const problem = await this.#missing(plan.codec);
    if (this.plan !== plan) return;
    this.problem = problem;
    if (problem) this.onProblem(problem);
  }

  /**
   * @param {string} codec
   * @returns {Promise<string | undefined>} the feature that the browser lacks
   */
  async #missing(codec) {
    if (!("VideoDecoder" in globalThis)) {
      return "This browser cannot decode video with WebCodecs. Use Chromium 94, Safari 16.4, Firefox 130 or later.";
    }
    const support = await VideoDecoder.isConfigSupported(this.#config()).catch(() => undefined);
    return support?.supported ? undefined : `This browser has no decoder for the stream's video (${codec}).`;
  }

  /** Drops all frames. Decoding continues at the next keyframe, and the picture stays. */
  restart() {
    for (const { picture } of this.pictures.values()) picture.close();
    this.pictures.clear();
    this.decoding.clear();
    this.waiting = [];
    this.dueUs = -Infinity;
    this.drawnUs = -Infinity;
    this.chain = undefined;
    this.#needKey();
  }

  /**
   * Takes a frame that has arrived.
   *
   * @param {Queued} queued
   */
  push(queued) {
    const { decodeUs } = queued.frame.tag;
    let place = this.waiting.length;
    while (place > 0 && this.waiting[place - 1].frame.tag.decodeUs > decodeUs) place -= 1;
    this.waiting.splice(place, 0, queued);
    if (this.waiting.length > WAITING_MAX) this.waiting.shift();
  }

  /**
   * Passes due frames to the decoder.
   *
   * @param {number} mediaUs the media time on the screen, or of the first picture
   */
  feed(mediaUs) {
    const limit = mediaUs + LEAD_US;
    for (let place = 0; place < this.waiting.length; ) {
      const queued = this.waiting[place];
      const { tag } = queued.frame;
      if (tag.decodeUs > limit) return;
      if (this.chain && (tag.decodeUs < this.chain.decodeUs || queued.group < this.chain.group)) {
        this.counters.lateForDecoder += 1;
        this.waiting.splice(place, 1);
      } else if (tag.kind === "I") {
        // Frames left before a keyframe will never get the frames they need.
        this.counters.unreferenced += place;
        this.waiting.splice(0, place + 1);
        place = 0;
        this.#decodeKey(queued);
      } else if (!this.needsKey && this.chain?.group === queued.group && tag.references <= this.chain.references) {
        this.waiting.splice(place, 1);
        this.#decodeOther(queued);
      } else if (tag.presentationUs <= this.dueUs) {
        this.counters.unreferenced += 1;
        this.waiting.splice(place, 1);
      } else {
        place += 1;
      }
    }
  }

  /**
   * Draws a frame that is due, now or when it is decoded.
   *
   * @param {number} presentationUs
   */
  show(presentationUs) {
    this.dueUs = Math.max(this.dueUs, presentationUs);
    this.#draw();
  }

  /** Frees the decoder. */
  close() {
    this.restart();
    if (this.decoder && this.decoder.state !== "closed") this.decoder.close();
    this.decoder = undefined;
  }

  /** @param {Queued} queued */
  #decodeKey(queued) {
    const before = this.chain;
    this.chain = { group: queued.group, references: 1, decodeUs: queued.frame.tag.decodeUs, others: 0, bs: 0 };
    const { description } = queued.frame;
    const isNew = description !== undefined && !equal(description, this.description);
    if (isNew) this.description = description;
    const wasBaseOnly = this.isBaseOnly;
    if (before) this.isBaseOnly = isBaseOnlyAfter(before, wasBaseOnly);
    const isOther = this.isBaseOnly !== wasBaseOnly;
    if (this.needsKey || isNew || isOther) this.#configure();
    if (this.isBaseOnly) this.counters.baseOnly += 1;
    this.needsKey = false;
    this.#decode(queued, "key");
  }

  /** @param {Queued} queued */
  #decodeOther(queued) {
    const { chain } = this;
    if (!chain) return;
    const { tag } = queued.frame;
    if (tag.kind === "B") chain.bs += 1;
    else chain.others += 1;
    // A decoder without reordering has no place for it. The next group changes this.
    if (tag.kind === "B" && tag.isDisposable && this.isBaseOnly) return;
    if (!tag.isDisposable) chain.references = Math.max(chain.references, tag.references + 1);
    chain.decodeUs = tag.decodeUs;
    this.#decode(queued, "delta");
  }

  /**
   * @param {Queued} queued
   * @param {EncodedVideoChunkType} type
   */
  #decode(queued, type) {
    if (!this.decoder || this.decoder.state !== "configured") return;
    if (this.decoder.decodeQueueSize > DECODING_MAX) {
      this.counters.overloads += 1;
      return this.#needKey();
    }
    const { tag, data } = queued.frame;
    this.decoding.set(tag.presentationUs, queued);
    while (this.decoding.size > DECODING_MAX * 2) this.decoding.delete(this.decoding.keys().next().value ?? 0);
    try {
      this.decoder.decode(new EncodedVideoChunk({ type, timestamp: tag.presentationUs, duration: tag.durationUs, data }));
    } catch (error) {
      this.#onError(error);
    }
  }

  /** Configures the decoder for a new group. */
  #configure() {
    if (!("VideoDecoder" in globalThis) || !this.plan) return;
    if (!this.decoder || this.decoder.state === "closed") {
      this.decoder = new VideoDecoder({
        output: (picture) => this.#onPicture(picture),
        error: (error) => this.#onError(error),
      });
    }
    try {
      this.decoder.configure(this.#config());
    } catch (error) {
      this.#onError(error);
    }
  }

  /** @returns {VideoDecoderConfig} */
  #config() {
    const { plan, description } = this;
    const isAvc = plan?.codec.startsWith("avc");
    const patched = description && isAvc && this.isBaseOnly ? withReorderFrames(description, 0) : description;
    return {
      codec: plan?.codec ?? "",
      optimizeForLatency: true,
      hardwareAcceleration: "prefer-software",
      ...(patched ? { description: Uint8Array.from(patched) } : {}),
    };
  }

  /** @param {VideoFrame} picture */
  #onPicture(picture) {
    this.counters.decoded += 1;
    const queued = this.decoding.get(picture.timestamp);
    this.decoding.delete(picture.timestamp);
    if (!queued || picture.timestamp <= this.drawnUs) return picture.close();
    this.pictures.get(picture.timestamp)?.picture.close();
    this.pictures.set(picture.timestamp, { picture, queued });
    if (this.pictures.size > PICTURES_MAX) this.#drop(Math.min(...this.pictures.keys()));
    this.#draw();
  }

  /** Draws the latest due picture, and frees the ones before it. */
  #draw() {
    let latest = -Infinity;
    for (const us of this.pictures.keys()) {
      if (us <= this.dueUs && us > latest) latest = us;
    }
    const entry = this.pictures.get(latest);
    if (!entry || !this.context) return;
    const { picture, queued } = entry;
    const { canvas } = this;
    if (canvas.width !== picture.displayWidth || canvas.height !== picture.displayHeight) {
      canvas.width = picture.displayWidth;
      canvas.height = picture.displayHeight;
    }
    this.context.drawImage(picture, 0, 0, canvas.width, canvas.height);
    this.drawnUs = latest;
    this.counters.drawn += 1;
    queued.onShown();
    for (const us of [...this.pictures.keys()]) if (us <= latest) this.#drop(us);
  }

  /** @param {number} presentationUs */
  #drop(presentationUs) {
    this.pictures.get(presentationUs)?.picture.close();
    this.pictures.delete(presentationUs);
  }

  #needKey() {
    this.needsKey = true;
    if (this.decoder?.state === "configured") this.decoder.reset();
  }

  /** @param {unknown} error */
  #onError(error) {
    this.counters.errors += 1;
    console.warn("the video decoder failed and is restarted at the next keyframe", error);
    this.#needKey();
  }
}

/**
 * Whether a group is decoded as base layer only, in the order of arrival. The previous group decides: with other frames
 * and no B-frame it is base layer only, and any B-frame restores reordering. So does a B-frame that other B-frames need
 * (a pyramid), since a base layer still contains some of these.
 *
 * @param {Came} before the previous group
 * @param {boolean} wasBaseOnly how the previous group was decoded
 * @returns {boolean}
 */
export function isBaseOnlyAfter({ others, bs }, wasBaseOnly) {
  if (bs > 0) return false;
  // A group of which almost nothing arrived decides nothing.
  return others > 1 || wasBaseOnly;
}

/**
 * @param {Uint8Array} one
 * @param {Uint8Array | undefined} other
 */
function equal(one, other) {
  return other !== undefined && one.length === other.length && one.every((byte, place) => byte === other[place]);
}
