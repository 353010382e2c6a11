/**
 * The player's pipeline: buffer, clock, and what becomes of each frame. It decodes nothing and draws nothing.
 *
 * The same rules as those of the player without a screen (`crates/live/src/playout`), checked by the same vectors.
 */

import { RenderClock } from "./clock.js";
import { Decodable } from "./decodable.js";
import { JitterTarget } from "./jitter.js";
import { Reorder } from "./reorder.js";

/** Thousandths of the media's speed while there is too much in the buffer. */
const FAST = 1050;
/** Thousandths of the media's speed while there is too little in the buffer. */
const SLOW = 950;
/** Share of the target that is buffered behind a frame that ended a pause at once. */
const LEAD_PERCENT = 60;
/** Frames that may wait; further ones are dropped. A minute at 60 frames per second. */
const BUFFER_MAX = 3600;

/**
 * @typedef {object} PlayerSettings
 * @property {import("./jitter.js").Buffering} buffering how much is buffered before playing begins, and begins again
 * @property {number | null} snapUs a gap of media time longer than this is not waited for; null: every gap is
 * @property {boolean} reorders whether frames of a second layer are put between those of the first by Algorithm 2
 * @property {boolean} catchesUp whether it plays up to 5 % faster or slower to come to its target
 * @property {boolean} resumesAtOnce whether the next picture in order ends a pause at once; what follows it is buffered
 *   for a part of the target
 * @property {boolean} inSequence whether the first track is taken as one stream: each group only after the one before it
 * @property {boolean} stopsStale whether keyframes are refused that begin to arrive when a newer one must be waiting
 *
 * @typedef {object} Arrival a frame that has arrived, as far as playout has to know it
 * @property {number} number the caller's own
 * @property {import("./reorder.js").Kind} kind
 * @property {boolean} isDisposable whether no other frame needs it
 * @property {number} group
 * @property {number} references how many frames of the group before it others may need
 * @property {number} decodeUs media time
 * @property {number} presentationUs media time
 * @property {number} durationUs
 *
 * @typedef {"waiting" | "late" | "overflow"} Fate what becomes of a frame that is not shown at once
 * @typedef {{ frame: Arrival, isDecodable: boolean }} Shown a frame to be shown now, or to be passed over
 */

/** A player without a decoder and a screen. */
export class Player {
  /** @param {PlayerSettings} settings */
  constructor(settings) {
    this.settings = settings;
    this.target = new JitterTarget(settings.buffering);
    /** @type {Reorder<Arrival> | null} */
    this.reorder = settings.reorders ? new Reorder(this.target.targetUs()) : null;
    this.clock = new RenderClock(settings.snapUs);
    this.decodable = new Decodable();
    /** In the order of presentation times.
     * @type {Arrival[]} */
    this.buffer = [];
    this.isPlaying = false;
    /** Since when there is something in the buffer of a player that does not play.
     * @type {number | null} */
    this.fillingSinceUs = null;
    /** By how much what follows the next frame is put off, to have something in the buffer again. */
    this.leadUs = 0;
    /** When a frame may be shown that would leave nothing in the buffer, like the one before it that ended a pause at once.
     * @type {number | null} */
    this.heldUntilUs = null;
  }

  /**
   * A frame has arrived.
   *
   * @param {number} nowUs
   * @param {Arrival} arrival
   * @returns {Fate}
   */
  push(nowUs, arrival) {
    this.target.onArrival(nowUs, arrival.decodeUs);
    if (!arrival.isDisposable) this.decodable.onReference(arrival.group, arrival.references);
    if (!this.reorder) return this.#enqueue(nowUs, arrival);
    if (!this.reorder.push(arrival)) return "late";
    /** @type {Fate} */
    let fate = "waiting";
    for (let next = this.reorder.poll(); next; next = this.reorder.poll()) {
      const nextFate = this.#enqueue(nowUs, next);
      if (next === arrival) fate = nextFate;
    }
    return fate;
  }

  /**
   * Nothing more comes: what waits for others to be put in order waits no longer.
   *
   * @param {number} nowUs
   */
  finish(nowUs) {
    for (const next of this.reorder?.finish() ?? []) this.#enqueue(nowUs, next);
  }

  /**
   * The next frame if its time has come.
   *
   * @param {number} nowUs
   * @returns {Shown | undefined}
   */
  poll(nowUs) {
    this.#begin(nowUs);
    const frame = this.buffer[0];
    if (!this.isPlaying || !frame) return undefined;
    if (this.clock.timeUntil(nowUs, frame.presentationUs) > 0) return undefined;
    this.buffer.shift();
    const isDecodable = this.decodable.isDecodable(frame.group, frame.references);
    if (isDecodable) this.clock.onShown(frame.presentationUs);
    const { leadUs } = this;
    this.leadUs = 0;
    this.clock.delay(leadUs);
    if (this.buffer.length === 0) {
      this.isPlaying = false;
      this.clock.pause();
      this.heldUntilUs = leadUs > 0 ? nowUs + frame.durationUs + leadUs : null;
    } else if (this.settings.catchesUp) {
      this.#chooseRate(nowUs);
    }
    return { frame, isDecodable };
  }

  /**
   * When the next frame is due, if one waits.
   *
   * @param {number} nowUs
   * @returns {number | undefined}
   */
  pollTimeout(nowUs) {
    const frame = this.buffer[0];
    if (!frame) return undefined;
    if (this.isPlaying) return nowUs + this.clock.timeUntil(nowUs, frame.presentationUs);
    return this.fillingSinceUs === null ? undefined : this.#beginsUs(this.fillingSinceUs);
  }

  /** @returns {number} how much media waits, by decode times */
  bufferedUs() {
    // By presentation times, one frame ahead of its B-frames would count for all of them.
    let oldest = Infinity;
    let newest = -Infinity;
    for (const { decodeUs } of this.buffer) {
      oldest = Math.min(oldest, decodeUs);
      newest = Math.max(newest, decodeUs);
    }
    return this.buffer.length > 0 ? newest - oldest : 0;
  }

  /**
   * @param {number} nowUs
   * @param {Arrival} arrival
   * @returns {Fate}
   */
  #enqueue(nowUs, arrival) {
    const { lastUs } = this.clock;
    if (lastUs !== null && arrival.presentationUs <= lastUs) return "late";
    if (this.buffer.length >= BUFFER_MAX) return "overflow";
    if (this.buffer.length === 0) this.fillingSinceUs = nowUs;
    let place = this.buffer.length;
    while (place > 0 && this.buffer[place - 1].presentationUs >= arrival.presentationUs) place -= 1;
    const isKnown = this.buffer[place]?.presentationUs === arrival.presentationUs;
    this.buffer.splice(place, isKnown ? 1 : 0, arrival);
    return "waiting";
  }

  /**
   * Begins to play once there is enough, or what there is has waited as long.
   *
   * @param {number} nowUs
   */
  #begin(nowUs) {
    const since = this.fillingSinceUs;
    if (since === null || this.isPlaying) return;
    const isFilled = this.bufferedUs() >= this.target.targetUs();
    if (this.buffer.length > 0 && (isFilled || nowUs >= this.#beginsUs(since))) {
      const wasHeld = this.heldUntilUs !== null && this.heldUntilUs > since && this.buffer.length === 1;
      this.heldUntilUs = null;
      if (this.#resumesAtOnce() && !isFilled && !wasHeld) {
        this.leadUs = Math.trunc((this.target.targetUs() * LEAD_PERCENT) / 100);
      }
      this.isPlaying = true;
      this.fillingSinceUs = null;
    }
  }

  /**
   * When playing begins with what has been there since then, if not more comes before.
   *
   * @param {number} sinceUs
   * @returns {number}
   */
  #beginsUs(sinceUs) {
    if (!this.#resumesAtOnce()) return sinceUs + this.target.targetUs();
    return this.buffer.length > 1 ? sinceUs : Math.max(sinceUs, this.heldUntilUs ?? sinceUs);
  }

  /** @returns {boolean} whether what there is ends a pause at once: no other picture belongs before it */
  #resumesAtOnce() {
    const frame = this.buffer[0];
    const { lastUs } = this.clock;
    if (!this.settings.resumesAtOnce || !frame || lastUs === null) return false;
    const gapUs = frame.presentationUs - lastUs;
    return frame.kind === "I" || gapUs <= frame.durationUs + Math.trunc(frame.durationUs / 2);
  }

  /** @param {number} nowUs */
  #chooseRate(nowUs) {
    const buffered = this.bufferedUs();
    const target = this.target.targetUs();
    let rate = 1000;
    if (buffered > target + Math.trunc(target / 2)) rate = FAST;
    else if (buffered < Math.trunc(target / 2)) rate = SLOW;
    if (rate !== this.clock.rate) this.clock.setRate(nowUs, rate);
  }
}
