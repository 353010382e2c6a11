/**
 * What became of the frames: the last ones one by one, all of them in numbers.
 */

import { figures, percentile } from "../playout/figures.js";

/** How long frames are kept one by one, in microseconds: half an hour. */
export const KEPT_US = 1_800_000_000;
/** Frames that are kept one by one: half an hour at 120 frames a second, and some 40 MB; the oldest are forgotten beyond. */
export const RECORDS_MAX = 250_000;
/** The part of either that is forgotten at once, so that it is not done with each frame. */
const FORGOTTEN_PART = 8;
/** By how much availability (or arrival) and media time of one publisher may drift apart, in microseconds. */
const DRIFT_US_MAX = 1_000_000;
/** How far groups of one publisher may lie apart that arrive one after the other. */
const GROUPS_APART_MAX = 2;

/**
 * @typedef {import("../playout/figures.js").FrameRecord & { number: number }} FrameRecord
 * @typedef {import("./tag.js").FrameTag} FrameTag
 * @typedef {{ received: number, shown: number, bytes: number }} KindCounters
 */

/** Counts the frames of one publisher after the other, as the crate `live` does. */
export class Numbering {
  constructor() {
    /** What the first frame of the next publisher counts as, if there were others before.
     * @type {number | undefined} */
    this.next = undefined;
    /** The number of the first frame that came of the publisher that is heard now, and what it counts as.
     * @type {{ from: number, as: number } | undefined} */
    this.counts = undefined;
  }

  /**
   * What the frame counts as that its publisher gives this number.
   *
   * @param {number} told
   * @returns {number}
   */
  number(told) {
    this.counts ??= { from: told, as: this.next ?? told };
    const number = Math.max(0, this.counts.as + told - this.counts.from);
    this.next = Math.max(this.next ?? 0, number + 1);
    return number;
  }

  /** Another publisher: its first frame counts as the one after the last. */
  begin() {
    this.counts = undefined;
  }
}

/** Keeps account of frames. */
export class Records {
  /** @param {number} startedUs */
  constructor(startedUs) {
    this.startedUs = startedUs;
    /** @type {FrameRecord[]} */
    this.frames = [];
    /** Whether the oldest frames have been forgotten. */
    this.hasForgotten = false;
    /** When the first picture was shown.
     * @type {number | undefined} */
    this.firstShownUs = undefined;
    /** The frame that is on the screen.
     * @type {FrameRecord | undefined} */
    this.onScreen = undefined;
    /** @type {Record<"I" | "P" | "B", KindCounters>} */
    this.byKind = { I: counters(), P: counters(), B: counters() };
    this.duplicates = 0;
    /** @type {number | undefined} */
    this.lastLatencyUs = undefined;
    this.numbering = new Numbering();
    /** The newest frame of the publisher that is heard.
     * @type {{ tag: FrameTag, isTagged: boolean, group: number } | undefined} */
    this.newest = undefined;
    /** Whether the next frame may be of another publisher. */
    this.isUncertain = false;
  }

  /** What comes from now on may be of another publisher: it is known by the next frame. */
  interrupt() {
    this.isUncertain = true;
  }

  /** What comes from now on is of another publisher. */
  succeed() {
    this.newest = undefined;
    this.interrupt();
  }

  /**
   * Whether a frame is of the publisher that is heard, by its times and its number, or its group if it has no number.
   *
   * @param {import("./packaging.js").MediaFrame} frame
   * @param {number} group
   * @returns {boolean}
   */
  continues({ tag, isTagged }, group) {
    const { newest } = this;
    if (!newest || newest.isTagged !== isTagged) return false;
    const available = tag.availableUs - newest.tag.availableUs;
    const media = tag.presentationUs - newest.tag.presentationUs;
    if (Math.abs(available - media) > DRIFT_US_MAX || group < newest.group - GROUPS_APART_MAX) return false;
    if (!isTagged) return group <= newest.group + GROUPS_APART_MAX;
    const counted = (tag.number - newest.tag.number) * tag.durationUs;
    // Frames of a camera do not all last equally long.
    return Math.abs(counted - media) <= DRIFT_US_MAX + Math.abs(media) / 2;
  }

  /**
   * A frame has arrived.
   *
   * @param {import("./packaging.js").MediaFrame} frame
   * @param {number} group
   * @param {number} nowUs
   * @returns {FrameRecord}
   */
  add(frame, group, nowUs) {
    const { tag, isTagged, bytes } = frame;
    /** @type {FrameRecord} */
    const record = {
      number: this.#numberOf(frame, group),
      group,
      kind: tag.kind,
      bytes,
      presentation_us: tag.presentationUs,
      available_us: isTagged ? tag.availableUs : null,
      arrived_us: nowUs,
      shown_us: null,
    };
    this.frames.push(record);
    this.#forget(nowUs);
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
    this.onScreen = record;
    if (record.shown_us !== null) return;
    record.shown_us = nowUs;
    this.firstShownUs ??= nowUs;
    this.byKind[record.kind].shown += 1;
    if (record.available_us !== null) this.lastLatencyUs = nowUs - record.available_us;
  }

  /**
   * How old what is on the screen is.
   *
   * @param {number} nowUs
   * @returns {number | null} microseconds; null if nothing is, or its publisher does not say
   */
  ageUs(nowUs) {
    const available = this.onScreen?.available_us ?? null;
    return available === null ? null : nowUs - available;
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

  /** Since when frames are kept: since the beginning, or since the oldest that has not been forgotten arrived. */
  get keptSinceUs() {
    return this.hasForgotten ? (this.frames[0]?.arrived_us ?? this.startedUs) : this.startedUs;
  }

  /**
   * The run, as far as its frames are kept, in the form of `weir live play`. The first picture is that of all of the run.
   *
   * @template {object} T
   * @param {number} nowUs
   * @param {T} about what else is to stand there
   */
  export(nowUs, about) {
    const since = this.keptSinceUs;
    const kept = this.#figures(this.frames, since, nowUs, this.#firstKeyframe());
    const first = this.firstShownUs === undefined ? null : (this.firstShownUs - this.startedUs) / 1e6;
    return { ...about, started_us: since, ended_us: nowUs, figures: { ...kept, time_to_first_frame: first }, frames: this.frames };
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
   * What a frame counts as.
   *
   * @param {import("./packaging.js").MediaFrame} frame
   * @param {number} group
   * @returns {number}
   */
  #numberOf(frame, group) {
    const { tag, isTagged } = frame;
    if (this.isUncertain && !this.continues(frame, group)) {
      this.numbering.begin();
      this.newest = undefined;
    }
    this.isUncertain = false;
    const { newest } = this;
    const isNewest = !newest || (isTagged ? tag.number > newest.tag.number : tag.presentationUs > newest.tag.presentationUs);
    if (isNewest) this.newest = { tag, isTagged, group };
    // Others' publishers number nothing: what came is all that is known of.
    if (!isTagged) this.numbering.begin();
    return this.numbering.number(tag.number);
  }

  /**
   * Forgets what is too old, or too much.
   *
   * @param {number} nowUs
   */
  #forget(nowUs) {
    const { frames } = this;
    let count = frames.length > RECORDS_MAX ? RECORDS_MAX / FORGOTTEN_PART : 0;
    if (nowUs - frames[0].arrived_us > KEPT_US + KEPT_US / FORGOTTEN_PART) {
      while (count < frames.length - 1 && nowUs - frames[count].arrived_us > KEPT_US) count += 1;
    }
    if (count === 0) return;
    this.hasForgotten = true;
    frames.splice(0, count);
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
  }}

/** @returns {KindCounters} */
function counters() {
  return { received: 0, shown: 0, bytes: 0 };
}
