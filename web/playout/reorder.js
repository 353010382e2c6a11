/**
 * Frames of two layers into one order: Algorithm 2 of the thesis.
 */

/** @typedef {"I" | "P" | "B"} Kind how a frame was coded */

/**
 * Puts frames into the order of decoding; drops B-frames that are late and holds those that are early.
 *
 * @template {{ kind: Kind, decodeUs: number, durationUs: number }} T
 */
export class Reorder {
  /**
   * An empty buffer that hands frames out while it holds more than `targetUs` of media.
   *
   * @param {number} targetUs
   */
  constructor(targetUs) {
    this.targetUs = targetUs;
    /** In the order of decode times.
     * @type {T[]} */
    this.buffer = [];
    /** The frame handed out last.
     * @type {T | null} */
    this.last = null;
  }

  /**
   * Takes a frame.
   *
   * @param {T} frame
   * @returns {boolean} false if it is a B-frame that is late, which is dropped
   */
  push(frame) {
    if (frame.kind === "B" && this.last && frame.decodeUs < this.last.decodeUs) return false;
    let place = this.buffer.length;
    while (place > 0 && this.buffer[place - 1].decodeUs > frame.decodeUs) place -= 1;
    this.buffer.splice(place, 0, frame);
    return true;
  }

  /** @returns {T | undefined} the next frame in order, if there is enough behind it */
  poll() {
    if (this.sizeUs() <= this.targetUs) return undefined;
    const next = this.buffer[0];
    // Times were rounded to microseconds.
    const follows = !this.last || Math.abs(next.decodeUs - this.last.decodeUs - this.last.durationUs) <= 1;
    // A B-frame that is early may be ahead of frames of the base layer, unless one came later.
    if (next.kind === "B" && !follows && this.buffer.every((frame) => frame.kind === "B")) return undefined;
    this.buffer.shift();
    this.last = next;
    return next;
  }

  /** @returns {T[]} nothing more comes: all that waits, in order */
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
