/**
 * Detects keyframes that are outdated when they begin to arrive.
 */

const KEYFRAMES_REMEMBERED = 8;

/**
 * Estimates how old a keyframe is when its first byte arrives, and how far apart keyframes are.
 *
 * On a link too slow for every keyframe they arrive one after the other, each older than the last. Only the player sees
 * which one is being sent, so the player decides to skip the next.
 */
export class Freshness {
  constructor() {
    /** The shortest delay of a keyframe's first byte, in microseconds.
     * @type {number | null} */
    this.quickestUs = null;
    /** When the last few keyframes became available, by group.
     * @type {Map<number, number>} */
    this.available = new Map();
  }

  /**
   * Whether a frame of `group`, whose first byte arrives now, is worth receiving.
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
    // When a keyframe is this old, the next one is available.
    const distance = this.#distanceUs();
    return distance === undefined || age < distance;
  }

  /** Returns the shortest time between the keyframes of two consecutive groups. */
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
