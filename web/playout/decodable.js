/**
 * Which frames can be decoded, by what has arrived of their groups.
 */

/** Groups that are remembered; the oldest is forgotten beyond. */
const GROUPS_MAX = 8;

/** What has arrived of the frames that others need. */
export class Decodable {
  constructor() {
    /** For each group: places among the frames that others need.
     * @type {Map<number, Set<number>>} */
    this.groups = new Map();
  }

  /**
   * A frame has arrived that others need, and before which its group has so many such.
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
   * Whether everything has arrived that a frame with so many references may need.
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
