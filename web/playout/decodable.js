/**
 * Decides which frames can be decoded, by what has arrived of their groups.
 */

/** Groups that are kept. Beyond this, the oldest is removed. */
const GROUPS_MAX = 8;

/** The arrived frames that others may need. */
export class Decodable {
  constructor() {
    /** For each group, the indexes of its arrived reference frames.
     * @type {Map<number, Set<number>>} */
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
      known = new Set();
      this.groups.set(group, known);
    }
    known.add(references);
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
    const known = this.groups.get(group);
    for (let place = 0; place < references; place++) {
      if (!known?.has(place)) return false;
    }
    return true;
  }
}
