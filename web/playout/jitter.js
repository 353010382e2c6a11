/**
 * How much is buffered before playing begins.
 */

/** What "lately" means, in microseconds. */
const WINDOW_US = 2_000_000;
/** Arrivals remembered; the oldest is forgotten beyond. */
const TRANSITS_MAX = 1024;

/**
 * @typedef {{ fixedUs: number } | { minUs: number, maxUs: number }} Buffering always as much, or as much as the arrival
 *   of frames varied lately, within bounds
 */

/** The target of the jitter buffer. */
export class JitterTarget {
  /** @param {Buffering} buffering */
  constructor(buffering) {
    this.buffering = buffering;
    /** Local time of arrival, and by how much it was later than the decode time.
     * @type {[at: number, transit: number][]} */
    this.transits = [];
  }

  /**
   * A frame with this decode time has arrived.
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

  /** @returns {number} how much media is to be buffered */
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
