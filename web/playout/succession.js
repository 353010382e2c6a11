/**
 * Whether the publisher of a stream is still the one that it was; the crate `live` goes by the same rules.
 *
 * Who falls and comes back with the same settings has an equal catalog, and the relay hands its objects on for the same requests. One
 * publisher counts groups and frames upwards, and a group has a frame at least: from one group to a later one the frames grow by as
 * much as the groups, or more, and the later one is made later. Of publishers that tell no such thing, media time does not run back
 * from one keyframe to that of a later group.
 *
 * Two that send at the same time are not followed to and fro: who was left is not heard again before the one that took its place
 * has been silent for a while.
 */

/** Less than this a clock may be set back, and times may be out of order, in microseconds. */
const BACK_US = 500_000;
/** So long nothing has to come of a publisher before one that was left is heard again, in microseconds. */
export const SILENCE_US = 2_000_000;

/**
 * @typedef {"same" | "another" | "before"} Sender of a frame: the publisher that is heard, another one, which took its place, or one
 *   whose place another took
 *
 * @typedef {object} Seen where a frame stands in what one publisher sends
 * @property {number} group
 * @property {number} number
 * @property {number} availableUs
 * @property {number} decodeUs
 */

/** What is known of the publisher that is heard. */
export class Succession {
  constructor() {
    /** A frame of its newest group.
     * @type {Seen | undefined} */
    this.newest = undefined;
    /** A frame of the newest group of the one before.
     * @type {Seen | undefined} */
    this.before = undefined;
    /** Groups below are of one before, where nothing but media time tells. */
    this.fromGroup = 0;
    /** When the last frame came of the publisher that is heard. */
    this.heardUs = -Infinity;
  }

  /**
   * Who sent a frame, on whichever track with video.
   *
   * @param {number} nowUs when it arrived
   * @param {Seen} seen
   * @param {boolean} isTold whether the publisher said all this itself
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
   * Whether a frame can be of the publisher that was left; notes how far that one is by now.
   *
   * @param {Seen} seen
   */
  #isOfBefore(seen) {
    if (!this.before || !canBeOf(seen, this.before)) return false;
    if (seen.group > this.before.group) this.before = seen;
    return true;
  }

  /**
   * Of a publisher that only tells media times.
   *
   * @param {Seen} seen
   * @param {Seen} newest
   * @param {boolean} isKey
   * @param {boolean} isSilent whether nothing came lately, so that one that counts groups anew may have begun
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
 * Of publishers that tell all: whichever of two was made later is of the one that is heard now.
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
 * Whether the publisher that sent `other` can have sent this too.
 *
 * @param {Seen} seen
 * @param {Seen} other
 */
function canBeOf(seen, other) {
  if (seen.group === other.group) return true;
  return seen.group < other.group ? canPrecede(seen, other) : canPrecede(other, seen);
}

/**
 * Whether one publisher can have sent both, of which `later` has the higher group.
 *
 * @param {Seen} seen
 * @param {Seen} later
 */
function canPrecede(seen, later) {
  const isCounted = later.number >= seen.number + later.group - seen.group;
  return isCounted && later.availableUs + BACK_US >= seen.availableUs;
}
