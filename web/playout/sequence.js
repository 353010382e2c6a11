/**
 * Delivers a track as one stream: its groups one after the other.
 */

/** Groups that may wait. Beyond this, the oldest is released. */
const GROUPS_MAX = 256;

/**
 * Holds the items of a group until the previous group has ended, as a single stream would.
 *
 * @template T
 */
export class Sequence {
  constructor() {
    /** The group whose items are released.
     * @type {number | null} */
    this.current = null;
    /** @type {Set<number>} */
    this.ended = new Set();
    /** @type {Map<number, T[]>} */
    this.waiting = new Map();
  }

  /**
   * Takes an item of a group.
   *
   * @param {number} group
   * @param {T} item
   */
  push(group, item) {
    this.current ??= group;
    const known = this.waiting.get(group);
    if (known) known.push(item);
    else this.waiting.set(group, [item]);
    if (this.waiting.size > GROUPS_MAX) this.current = Math.min(...this.waiting.keys());
  }

  /**
   * Notes the end of a group.
   *
   * @param {number} group
   */
  end(group) {
    this.ended.add(group);
    while (this.ended.size > GROUPS_MAX) this.ended.delete(Math.min(...this.ended));
  }

  /** @returns {T[]} the released items, in order */
  poll() {
    /** @type {T[]} */
    const passing = [];
    while (this.current !== null) {
      passing.push(...(this.waiting.get(this.current) ?? []));
      this.waiting.delete(this.current);
      if (!this.ended.delete(this.current)) break;
      this.current += 1;
    }
    return passing;
  }
}
