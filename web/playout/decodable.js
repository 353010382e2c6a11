/**
 * Decides which frames can be decoded, by what has arrived of their groups.
 */

/** Groups that are kept. Beyond this, the oldest is removed. */
const GROUPS_MAX = 8;

/** Reference frames after the first gap that are kept of a group. */
export const AHEAD_MAX = 10_000;

/** The arrived frames that others may need. */
export class Decodable {
  constructor() {
    /** For each group, the number of reference frames that arrived without a gap since the first, and those after the gap.
     * @type {Map<number, { complete: number, ahead: Set<number> }>} */
    this.groups = new Map();
  }

  /**
   * Records the arrival of a reference frame, before which its group has `references` others.
   *
   * @param {number} group
   * @param {number} references
   */
  onReference(group, references) {
    let known = this.groups.get(group);
    if (!known) {
      known = { complete: 0, ahead: new Set() };
      this.groups.set(group, known);
    }
    if (references === known.complete) {
      known.complete += 1;
      while (known.ahead.delete(known.complete)) known.complete += 1;
    } else if (references > known.complete && known.ahead.size < AHEAD_MAX) {
      known.ahead.add(references);
    }
    while (this.groups.size > GROUPS_MAX) this.groups.delete(Math.min(...this.groups.keys()));
  }

  /**
   * Whether all reference frames have arrived that a frame with this `references` may need.
   *
   * @param {number} group
   * @param {number} references
   * @returns {boolean}
   */
  isDecodable(group, references) {
    return references <= (this.groups.get(group)?.complete ?? 0);
  }
}
