/**
 * The jitter buffer's target: how much is buffered before playing begins.
 */

/** The length of the recent past that the target adapts to, in microseconds. */
const WINDOW_US = 2_000_000;
/** Arrivals that are kept. Beyond this, the oldest is removed. */
const TRANSITS_MAX = 1024;

/**
 * @typedef {{ fixedUs: number } | { minUs: number, maxUs: number }} Buffering constant, or as much as recent arrivals
 *   varied, within bounds
 */

/** The target of the jitter buffer. */
export class JitterTarget {
  /** @param {Buffering} buffering */
  constructor(buffering) {
    this.buffering = buffering;
    /** Local arrival times, and arrival minus decode time.
     * @type {[at: number, transit: number][]} */
    this.transits = [];
  }

  /**
   * Records the arrival of a frame with this decode time.
   *
   * @param {number} nowUs
   * @param {number} decodeUs
   */
  onArrival(nowUs, decodeUs) {
    if ("fixedUs" in this.buffering) return;
    this.transits.push([nowUs, nowUs - decodeUs]);
    let old = 0;
    while (old < this.transits.length && (nowUs - this.transits[old][0] > WINDOW_US || this.transits.length - old > TRANSITS_MAX)) {
      old += 1;
    }
    if (old > 0) this.transits.splice(0, old);
  }

  /** @returns {number} how much media to buffer */
  targetUs() {
    if ("fixedUs" in this.buffering) return this.buffering.fixedUs;
    const { minUs, maxUs } = this.buffering;
    let quickest = Infinity;
    let slowest = -Infinity;
    for (const [, transit] of this.transits) {
      quickest = Math.min(quickest, transit);
      slowest = Math.max(slowest, transit);
    }
    const spread = this.transits.length > 0 ? slowest - quickest : 0;
    return Math.min(Math.max(spread, minUs), maxUs);
  }
}
