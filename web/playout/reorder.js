/**
 * Merges the frames of two layers: Algorithm 2 of the thesis.
 */

/** @typedef {"I" | "P" | "B"} Kind how a frame is coded */

/**
 * Puts frames in decoding order. Drops late B-frames, and holds early ones.
 *
 * @template {{ kind: Kind, decodeUs: number, durationUs: number }} T
 */
export class Reorder {
  /**
   * Returns an empty buffer that releases frames while it holds more than `targetUs` of media.
   *
   * @param {number} targetUs
   */
  constructor(targetUs) {
    this.targetUs = targetUs;
    /** Frames by decode time.
     * @type {T[]} */
    this.buffer = [];
    /** The last released frame.
     * @type {T | null} */
    this.last = null;
  }

  /**
   * Takes a frame.
   *
   * @param {T} frame
   * @returns {boolean} false for a late B-frame, which is dropped
   */
  push(frame) {
    if (frame.kind === "B" && this.last && frame.decodeUs < this.last.decodeUs) return false;
    let place = this.buffer.length;
    while (place > 0 && this.buffer[place - 1].decodeUs > frame.decodeUs) place -= 1;
    this.buffer.splice(place, 0, frame);
    return true;
  }

  /** @returns {T | undefined} the next frame in order, if enough media follows it */
  poll() {
    if (this.sizeUs() <= this.targetUs) return undefined;
    const next = this.buffer[0];
    // Times were rounded to microseconds.
    const follows = !this.last || Math.abs(next.decodeUs - this.last.decodeUs - this.last.durationUs) <= 1;
    // An early B-frame may precede frames of the base layer that have not arrived. A later base frame rules this out.
    if (next.kind === "B" && !follows && this.buffer.every((frame) => frame.kind === "B")) return undefined;
    this.buffer.shift();
    this.last = next;
    return next;
  }

  /** @returns {T[]} all waiting frames in order, at the end of the stream */
  finish() {
    const rest = this.buffer;
    this.buffer = [];
    this.last = rest.at(-1) ?? this.last;
    return rest;
  }

  /** @returns {number} how much media waits */
  sizeUs() {
    const newest = this.buffer.at(-1);
    return newest ? newest.decodeUs - this.buffer[0].decodeUs : 0;
  }
}
