/**
 * Detects keyframes that a newer one can overtake, and frames of groups that playout has left
 * (`crates/live/src/playout/freshness.rs`).
 */

const KEYFRAMES_REMEMBERED = 8;

/**
 * Decides whether a frame is worth receiving when its first byte arrives.
 *
 * Frames of a group are too late once a frame of a later group was shown. They would only delay that group, so they
 * are refused, unless they are in the subgroup of their keyframe: where a group is one stream, what is late of it is
 * mostly sent already. Keyframes need a finer rule.
 *
 * On a link too slow for every keyframe, keyframes wait at the relay, each longer than the last. Only the player sees
 * which one is being sent, so the player decides to skip one for the next. A keyframe that waited in the network
 * instead cannot be overtaken: all that follows it has the same delay. So a keyframe is refused only if
 *
 * - it waited behind another keyframe (nothing else arrived in between) for longer than keyframes are apart, so that
 *   the relay has a newer one, and
 * - the network holds less than a keyframe, so that part of this one is not sent yet, and
 * - the previous refusal, if that was the last keyframe, brought a fresher one.
 */
export class Freshness {
  constructor() {
    /** The shortest delay of a keyframe's first byte, in microseconds.
     * @type {number | null} */
    this.quickestUs = null;
    /** The last few keyframes, by group.
     * @type {Map<number, { subgroup: number | undefined, availableUs: number }>} */
    this.keyframes = new Map();
    /** The latest group of which a frame was shown. */
    this.shown = -Infinity;
    /** Whether another frame has begun to arrive since the last keyframe did. */
    this.hasOtherBegun = false;
    /** The delay of the last keyframe that did not wait for another one: the delay of the network at that time. */
    this.networkUs = 0;
    /** The last keyframe that began to arrive, and how long it waited behind other keyframes.
     * @type {{ atUs: number, waitedUs: number, isWanted: boolean } | undefined} */
    this.last = undefined;
    /** The time between a wanted keyframe and one that followed it at once: how long a keyframe takes to arrive. */
    this.tookUs = 0;
  }

  /**
   * Whether a frame of `group`, whose first byte arrives now, is worth receiving.
   *
   * @param {number} nowUs
   * @param {number} group
   * @param {number | undefined} subgroup `undefined` for a frame that was sent as a datagram
   * @param {import("./reorder.js").Kind} kind
   * @param {number} availableUs
   * @returns {boolean}
   */
  isWanted(nowUs, group, subgroup, kind, availableUs) {
    if (kind !== "I") {
      this.hasOtherBegun = true;
      const keyframe = this.keyframes.get(group);
      return group >= this.shown || (keyframe !== undefined && keyframe.subgroup === subgroup);
    }
    const transitUs = nowUs - availableUs;
    this.quickestUs = Math.min(this.quickestUs ?? transitUs, transitUs);
    this.keyframes.set(group, { subgroup, availableUs });
    while (this.keyframes.size > KEYFRAMES_REMEMBERED) this.keyframes.delete(Math.min(...this.keyframes.keys()));
    const last = this.hasOtherBegun ? undefined : this.last;
    this.hasOtherBegun = false;
    const waitedUs = transitUs - this.networkUs;
    if (last === undefined || (!last.isWanted && waitedUs >= last.waitedUs)) {
      this.networkUs = transitUs;
      return this.#note(nowUs, 0, true);
    }
    if (last.isWanted) this.tookUs = nowUs - last.atUs;
    const distanceUs = this.#distanceUs();
    const isNewerThere = distanceUs !== undefined && waitedUs >= distanceUs;
    const isSent = this.networkUs - this.quickestUs >= this.tookUs;
    return this.#note(nowUs, waitedUs, !isNewerThere || isSent);
  }

  /**
   * Notes that a frame of `group` was shown.
   *
   * @param {number} group
   */
  noteShown(group) {
    this.shown = Math.max(this.shown, group);
  }

  /**
   * @param {number} atUs
   * @param {number} waitedUs
   * @param {boolean} isWanted
   * @returns {boolean} `isWanted`
   */
  #note(atUs, waitedUs, isWanted) {
    this.last = { atUs, waitedUs, isWanted };
    return isWanted;
  }

  /** Returns the shortest time between the keyframes of two consecutive groups. */
  #distanceUs() {
    /** @type {number | undefined} */
    let shortest;
    for (const [group, { availableUs }] of this.keyframes) {
      const next = this.keyframes.get(group + 1);
      if (next !== undefined) shortest = Math.min(shortest ?? Infinity, next.availableUs - availableUs);
    }
    return shortest;
  }
}
