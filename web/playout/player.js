/**
 * The player: buffer, clock, and the fate of each frame. It does not decode or draw.
 *
 * The rules are those of the player without a screen (`crates/live/src/playout`), checked by the same vectors.
 */

import { RenderClock } from "./clock.js";
import { Decodable } from "./decodable.js";
import { JitterTarget } from "./jitter.js";
import { Reorder } from "./reorder.js";

/** The speed if the buffer is above its target, in thousandths of normal. */
const FAST = 1050;
/** The speed if the buffer is below its target, in thousandths of normal. */
const SLOW = 950;
/** Share of the target that is buffered after a frame that ended a pause at once. */
const LEAD_PERCENT = 60;
/** Frames that may wait: a minute at 60 per second. Further frames are dropped. */
const BUFFER_MAX = 3600;

/**
 * @typedef {object} PlayerSettings
 * @property {import("./jitter.js").Buffering} buffering how much is buffered before playing begins or resumes
 * @property {number | null} snapUs the longest gap of media time that is waited for; null: every gap is
 * @property {boolean} reorders whether frames of a second layer are merged into the first by Algorithm 2
 * @property {boolean} catchesUp whether the speed changes by up to 5 % to reach the target
 * @property {boolean} resumesAtOnce whether the next picture in order ends a pause at once; then only part of the
 *   target is buffered before the following one
 * @property {boolean} inSequence whether the first track is played as one stream: each group only after the previous
 *   one
 * @property {boolean} stopsStale whether keyframes are refused if a newer one must be waiting when they begin to arrive
 *
 * @typedef {object} Arrival an arrived frame, as playout sees it
 * @property {number} number any number that the caller chooses
 * @property {import("./reorder.js").Kind} kind
 * @property {boolean} isDisposable whether no other frame needs it
 * @property {number} group
 * @property {number} references the number of earlier frames of the group that others may need
 * @property {number} decodeUs media time
 * @property {number} presentationUs media time
 * @property {number} durationUs
 *
 * @typedef {"waiting" | "late" | "overflow"} Fate the fate of a frame that has just arrived
 * @typedef {{ frame: Arrival, isDecodable: boolean }} Shown a frame to show or to skip
 */

/** A player without a decoder or a screen. */
export class Player {
  /** @param {PlayerSettings} settings */
  constructor(settings) {
    this.settings = settings;
    this.target = new JitterTarget(settings.buffering);
    /** @type {Reorder<Arrival> | null} */
    this.reorder = settings.reorders ? new Reorder(this.target.targetUs()) : null;
    this.clock = new RenderClock(settings.snapUs);
    this.decodable = new Decodable();
    /** Waiting frames in order of presentation times.
     * @type {Arrival[]} */
    this.buffer = [];
    this.isPlaying = false;
    /** When the first frame entered the buffer of a player that is not playing.
     * @type {number | null} */
    this.fillingSinceUs = null;
    /** How much the frames after the next one are delayed to fill the buffer again. */
    this.leadUs = 0;
    /** The earliest time to show a frame that would empty the buffer again, after a frame that ended a pause at once.
     * @type {number | null} */
    this.heldUntilUs = null;
  }

  /**
   * Takes a frame that has arrived.
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
   * Ends the stream: frames that wait for reordering are released.
   *
   * @param {number} nowUs
   */
  finish(nowUs) {
    for (const next of this.reorder?.finish() ?? []) this.#enqueue(nowUs, next);
  }

  /**
   * Returns the next frame if it is due.
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
   * Returns when the next frame is due.
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

  /** @returns {number} the buffered media, by decode times */
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
   * Starts to play when the buffer is full, or its first frame has waited long enough.
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
   * Returns when playing begins if nothing more arrives.
   *
   * @param {number} sinceUs
   * @returns {number}
   */
  #beginsUs(sinceUs) {
    if (!this.#resumesAtOnce()) return sinceUs + this.target.targetUs();
    return this.buffer.length > 1 ? sinceUs : Math.max(sinceUs, this.heldUntilUs ?? sinceUs);
  }

  /** @returns {boolean} whether the buffered frames end a pause at once, because no other picture precedes them */
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
