/**
 * Recognises that another publisher took over a stream. The crate `live` has the same rules
 * (`viewer/publisher_change.rs`).
 *
 * A publisher that restarts with the same settings has an equal catalog, and the relay delivers its objects for the
 * same requests. Two rules tell publishers apart. First, a publisher counts groups and frames upwards, and each group
 * has at least one frame. So from a group to a later one the frame number grows at least as much as the group number,
 * and the later frame became available later. Second, for objects without such numbers, media time must not run back
 * from one keyframe to that of a later group.
 *
 * If two publishers send at the same time, the player does not alternate between them: it returns to the former
 * publisher only after the current one has been silent for {@link SILENCE_US}.
 */

/** How far a publisher's times may run back, in microseconds, because clocks are corrected and frames reordered. */
const BACK_US = 500_000;
/** How long the current publisher must be silent before the former one is played again, in microseconds. */
export const SILENCE_US = 2_000_000;

/**
 * @typedef {"same" | "another" | "before"} Sender of a frame: the current publisher, another one that replaces it, or
 *   one that was replaced
 *
 * @typedef {object} Seen the position of a frame in its publisher's stream
 * @property {number} group
 * @property {number} number
 * @property {number} availableUs
 * @property {number} decodeUs
 */

/** Tracks the current publisher, and the one before. */
export class Succession {
  constructor() {
    /** A frame of the current publisher's newest group.
     * @type {Seen | undefined} */
    this.newest = undefined;
    /** A frame of the former publisher's newest group.
     * @type {Seen | undefined} */
    this.before = undefined;
    /** Groups below this one belong to the former publisher, if only media time tells the two apart. */
    this.fromGroup = 0;
    /** When the last frame of the current publisher arrived. */
    this.heardUs = -Infinity;
  }

  /**
   * Returns who sent a frame, on any video track.
   *
   * @param {number} nowUs when it arrived
   * @param {Seen} seen
   * @param {boolean} isTold whether the publisher itself has described the frame
   * @param {boolean} isKey
   * @returns {Sender}
   */
  judge(nowUs, seen, isTold, isKey) {
    const { newest } = this;
    const isSilent = nowUs - this.heardUs >= SILENCE_US;
    /** @type {Sender} */
    let sender = "same";
    if (newest) sender = isTold ? toldAgainst(seen, newest) : this.#timedAgainst(seen, newest, isKey, isSilent);
    if (sender === "another" && isTold && !isSilent && this.#isOfBefore(seen)) sender = "before";
    else if (sender === "before" && isSilent) sender = "another";
    if (sender === "before") return sender;
    this.heardUs = nowUs;
    if (sender === "another") {
      this.before = newest;
      if (!isTold) this.fromGroup = seen.group;
    }
    if (!newest || sender === "another" || seen.group > newest.group) this.newest = seen;
    return sender;
  }

  /**
   * Whether the former publisher can have sent a frame. If so, records that publisher's progress.
   *
   * @param {Seen} seen
   */
  #isOfBefore(seen) {
    if (!this.before || !canBeOf(seen, this.before)) return false;
    if (seen.group > this.before.group) this.before = seen;
    return true;
  }

  /**
   * Returns the publisher of a frame that carries media times only.
   *
   * @param {Seen} seen
   * @param {Seen} newest
   * @param {boolean} isKey
   * @param {boolean} isSilent whether nothing arrived lately, so that a publisher may have restarted its groups
   * @returns {Sender}
   */
  #timedAgainst(seen, newest, isKey, isSilent) {
    if (seen.group < this.fromGroup) return "before";
    const isBack = seen.decodeUs + BACK_US < newest.decodeUs;
    const isOther = seen.group > newest.group || (isSilent && seen.group < newest.group);
    return isKey && isBack && isOther ? "another" : "same";
  }
}

/**
 * Returns the publisher of a frame with number and availability. Of two, the current one is that whose frames are
 * later.
 *
 * @param {Seen} seen
 * @param {Seen} newest
 * @returns {Sender}
 */
function toldAgainst(seen, newest) {
  if (canBeOf(seen, newest)) return "same";
  return seen.availableUs > newest.availableUs ? "another" : "before";
}

/**
 * Whether the publisher of `other` can have sent this frame.
 *
 * @param {Seen} seen
 * @param {Seen} other
 */
function canBeOf(seen, other) {
  if (seen.group === other.group) return true;
  return seen.group < other.group ? canPrecede(seen, other) : canPrecede(other, seen);
}

/**
 * Whether one publisher can have sent both frames, of which `later` has the higher group.
 *
 * @param {Seen} seen
 * @param {Seen} later
 */
function canPrecede(seen, later) {
  const isCounted = later.number >= seen.number + later.group - seen.group;
  return isCounted && later.availableUs + BACK_US >= seen.availableUs;
}
