/**
 * One track as if it were one stream: its groups one after the other.
 */

/** Groups that may wait; the oldest one that waits may pass beyond. */
const GROUPS_MAX = 256;

/**
 * Holds what arrives of a group until the one before it has ended, as a single stream would.
 *
 * @template T
 */
export class Sequence {
  constructor() {
    /** The group that may pass.
     * @type {number | null} */
    this.current = null;
    /** @type {Set<number>} */
    this.ended = new Set();
    /** @type {Map<number, T[]>} */
    this.waiting = new Map();
  }

  /**
   * Something of a group has arrived.
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
   * Nothing more of a group will arrive.
   *
   * @param {number} group
   */
  end(group) {
    this.ended.add(group);
    while (this.ended.size > GROUPS_MAX) this.ended.delete(Math.min(...this.ended));
  }

  /** @returns {T[]} what may pass, in order */
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
