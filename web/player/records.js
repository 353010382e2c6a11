/**
 * What became of the frames: the last ones one by one, all of them in numbers.
 */

import { figures, percentile } from "../playout/figures.js";

/** Frames that are kept one by one: half an hour at 24 frames a second; the oldest is forgotten beyond. */
const RECORDS_MAX = 43_200;
const KINDS = /** @type {const} */ (["I", "P", "B"]);

/**
 * @typedef {import("../playout/figures.js").FrameRecord & { number: number }} FrameRecord
 * @typedef {{ received: number, shown: number, bytes: number }} KindCounters
 */

/** Keeps account of frames. */
export class Records {
  /** @param {number} startedUs */
  constructor(startedUs) {
    this.startedUs = startedUs;
    /** @type {FrameRecord[]} */
    this.frames = [];
    /** @type {Record<"I" | "P" | "B", KindCounters>} */
    this.byKind = { I: counters(), P: counters(), B: counters() };
    this.duplicates = 0;
    /** @type {number | undefined} */
    this.lastLatencyUs = undefined;
  }

  /**
   * A frame has arrived.
   *
   * @param {import("./packaging.js").MediaFrame} frame
   * @param {number} group
   * @param {number} nowUs
   * @returns {FrameRecord}
   */
  add({ tag, isTagged, bytes }, group, nowUs) {
    /** @type {FrameRecord} */
    const record = {
      number: tag.number,
      group,
      kind: tag.kind,
      bytes,
      presentation_us: tag.presentationUs,
      available_us: isTagged ? tag.availableUs : null,
      arrived_us: nowUs,
      shown_us: null,
    };
    this.frames.push(record);
    if (this.frames.length > RECORDS_MAX) this.frames.splice(0, RECORDS_MAX / 8);
    const kind = this.byKind[tag.kind];
    kind.received += 1;
    kind.bytes += bytes;
    return record;
  }

  /**
   * A frame is on the screen.
   *
   * @param {FrameRecord} record
   * @param {number} nowUs
   */
  onShown(record, nowUs) {
    if (record.shown_us !== null) return;
    record.shown_us = nowUs;
    this.byKind[record.kind].shown += 1;
    if (record.available_us !== null) this.lastLatencyUs = nowUs - record.available_us;
  }

  /**
   * Figures of the frames that arrived lately.
   *
   * @param {number} nowUs
   * @param {number} windowUs
   */
  lately(nowUs, windowUs) {
    const since = nowUs - windowUs;
    let first = this.frames.length;
    while (first > 0 && this.frames[first - 1].arrived_us >= since) first -= 1;
    const frames = this.frames.slice(first);
    const latencies = frames.flatMap(({ shown_us, available_us }) => (shown_us === null || available_us === null ? [] : [shown_us - available_us]));
    latencies.sort((one, other) => one - other);
    const median = latencies.length > 0 ? percentile(latencies, 50) / 1e6 : null;
    return { ...this.#figures(frames, Math.max(since, this.startedUs), nowUs), latency_median: median };
  }

  /** Whether the publisher says when it had a frame; if not, nothing can be said of latency and age. */
  get isTold() {
    const newest = this.frames.at(-1);
    return newest === undefined || newest.available_us !== null;
  }

  /**
   * The whole run in the form of `weir live play`.
   *
   * @param {number} nowUs
   * @param {object} about what else is to stand there
   */
  export(nowUs, about) {
    const figures = this.#figures(this.frames, this.startedUs, nowUs, this.#firstKeyframe());
    return { ...about, started_us: this.startedUs, ended_us: nowUs, figures, frames: this.frames };
  }

  /**
   * The number of the first keyframe: what came before it was left of a group that the player did not join.
   */
  #firstKeyframe() {
    let first = Infinity;
    for (const { kind, number } of this.frames) if (kind === "I") first = Math.min(first, number);
    return first;
  }

  /**
   * A player knows of the origin only what it received: the origin had the frames from the first to the last of these.
   *
   * @param {FrameRecord[]} frames
   * @param {number} startUs
   * @param {number} endUs
   * @param {number} from the number of the first of them that counts, if not all do
   */
  #figures(frames, startUs, endUs, from = Infinity) {
    let first = Infinity;
    let last = -Infinity;
    for (const { number } of frames) {
      first = Math.min(first, number);
      last = Math.max(last, number);
    }
    if (from < Infinity) first = from;
    return figures(frames, frames.length > 0 ? last - first + 1 : 0, startUs, endUs);
  }

  /** @returns {string[]} the kinds of frames */
  static get kinds() {
    return [...KINDS];
  }
}

/** @returns {KindCounters} */
function counters() {
  return { received: 0, shown: 0, bytes: 0 };
}
