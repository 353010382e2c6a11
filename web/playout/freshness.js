/**
 * Which streams a player no longer wants: keyframes that begin to arrive when a newer one waits.
 */

const KEYFRAMES_REMEMBERED = 8;

/**
 * Knows how old a keyframe is when its first byte arrives, and how far apart they are.
 *
 * On a link too slow for every keyframe they come one after the other, each older than the last. Only the player sees
 * which one is being sent, so it is the player who skips the next.
 */
export class Freshness {
  constructor() {
    /** The quickest way of a keyframe's first byte, in microseconds.
     * @type {number | null} */
    this.quickestUs = null;
    /** When the last few keyframes were available, by group.
     * @type {Map<number, number>} */
    this.available = new Map();
  }

  /**
   * Whether a frame of `group`, of which the first byte arrives now, is worth receiving.
   *
   * @param {number} nowUs
   * @param {number} group
   * @param {import("./reorder.js").Kind} kind
   * @param {number} availableUs
   * @returns {boolean}
   */
  isWanted(nowUs, group, kind, availableUs) {
    if (kind !== "I") return true;
    const transit = nowUs - availableUs;
    this.quickestUs = this.quickestUs === null ? transit : Math.min(this.quickestUs, transit);
    const age = transit - this.quickestUs;
    this.available.set(group, availableUs);
    while (this.available.size > KEYFRAMES_REMEMBERED) this.available.delete(Math.min(...this.available.keys()));
    // After this time the next keyframe is there.
    const distance = this.#distanceUs();
    return distance === undefined || age < distance;
  }

  /** The shortest time between two keyframes of groups in succession. */
  #distanceUs() {
    /** @type {number | undefined} */
    let shortest;
    for (const [group, at] of this.available) {
      const next = this.available.get(group + 1);
      if (next !== undefined) shortest = Math.min(shortest ?? Infinity, next - at);
    }
    return shortest;
  }
}
