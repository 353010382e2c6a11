/**
 * The fate of frames: the last ones individually, all of them in counters.
 */

import { figures, percentile } from "../playout/figures.js";

/** How long frames are kept individually, in microseconds: half an hour. */
export const KEPT_US = 1_800_000_000;
/**
 * Frames that are kept individually: half an hour at 120 frames a second, about 40 MB. Beyond this, the oldest are
 * removed.
 */
export const RECORDS_MAX = 250_000;
/** The part of either limit that is removed at once, so that it is not done for each frame. */
const FORGOTTEN_PART = 8;
/** How far availability (or arrival) and media time of one publisher may drift apart, in microseconds. */
const DRIFT_US_MAX = 1_000_000;
/** The largest distance of consecutive groups of one publisher. */
const GROUPS_APART_MAX = 2;

/**
 * @typedef {import("../playout/figures.js").FrameRecord & { number: number }} FrameRecord
 * @typedef {import("./tag.js").FrameTag} FrameTag
 * @typedef {{ received: number, shown: number, bytes: number }} KindCounters
 */

/** Numbers the frames of successive publishers, like the crate `live`. */
export class Numbering {
  constructor() {
    /** The number of the next publisher's first frame, if another publisher preceded.
     * @type {number | undefined} */
    this.next = undefined;
    /** The current publisher's number of its first frame, and the number that replaces it.
     * @type {{ from: number, as: number } | undefined} */
    this.counts = undefined;
  }

  /**
   * Returns the number of a frame with this number from its publisher.
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

  /** Begins another publisher, whose first frame continues the numbers. */
  begin() {
    this.counts = undefined;
  }
}

/** The records of frames. */
export class Records {
  /** @param {number} startedUs */
  constructor(startedUs) {
    this.startedUs = startedUs;
    /** @type {FrameRecord[]} */
    this.frames = [];
    /** Whether the oldest frames were removed. */
    this.hasForgotten = false;
    /** When the first picture was shown.
     * @type {number | undefined} */
    this.firstShownUs = undefined;
    /** The frame on the screen.
     * @type {FrameRecord | undefined} */
    this.onScreen = undefined;
    /** @type {Record<"I" | "P" | "B", KindCounters>} */
    this.byKind = { I: counters(), P: counters(), B: counters() };
    this.duplicates = 0;
    /** @type {number | undefined} */
    this.lastLatencyUs = undefined;
    this.numbering = new Numbering();
    /** The newest frame of the current publisher.
     * @type {{ tag: FrameTag, isTagged: boolean, group: number } | undefined} */
    this.newest = undefined;
    /** Whether the next frame may be of another publisher. */
    this.isUncertain = false;
  }

  /** Notes that the publisher may change. The next frame decides. */
  interrupt() {
    this.isUncertain = true;
  }

  /** Notes that the publisher changes with the next frame. */
  succeed() {
    this.newest = undefined;
    this.interrupt();
  }

  /**
   * Whether a frame belongs to the current publisher, by its times and its number, or its group without a number.
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
    // Frames of a camera have different durations.
    return Math.abs(counted - media) <= DRIFT_US_MAX + Math.abs(media) / 2;
  }

  /**
   * Records the arrival of a frame.
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
   * Records that a frame is on the screen.
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
   * Returns the age of the picture on the screen.
   *
   * @param {number} nowUs
   * @returns {number | null} microseconds; null without a picture, or if its availability is unknown
   */
  ageUs(nowUs) {
    const available = this.onScreen?.available_us ?? null;
    return available === null ? null : nowUs - available;
  }

  /**
   * Returns the figures of recent frames.
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

  /** Whether availability is known. If not, latency and age are unknown. */
  get isTold() {
    const newest = this.frames.at(-1);
    return newest === undefined || newest.available_us !== null;
  }

  /** The time since which frames are kept: the beginning, or the arrival of the oldest kept frame. */
  get keptSinceUs() {
    return this.hasForgotten ? (this.frames[0]?.arrived_us ?? this.startedUs) : this.startedUs;
  }

  /**
   * Returns the run, as far as its frames are kept, in the form of `weir live play`. The first picture is that of the
   * whole run.
   *
   * @template {object} T
   * @param {number} nowUs
   * @param {T} about further fields
   */
  export(nowUs, about) {
    const since = this.keptSinceUs;
    const kept = this.#figures(this.frames, since, nowUs, this.#firstKeyframe());
    const first = this.firstShownUs === undefined ? null : (this.firstShownUs - this.startedUs) / 1e6;
    return { ...about, started_us: since, ended_us: nowUs, figures: { ...kept, time_to_first_frame: first }, frames: this.frames };
  }

  /**
   * Returns the number of the first keyframe. Frames before it belong to a group that the player did not join.
   */
  #firstKeyframe() {
    let first = Infinity;
    for (const { kind, number } of this.frames) if (kind === "I") first = Math.min(first, number);
    return first;
  }

  /**
   * Returns the number of a frame.
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
    // Other publishers do not number frames, so only arrived frames are known.
    if (!isTagged) this.numbering.begin();
    return this.numbering.number(tag.number);
  }

  /**
   * Removes records beyond the limits.
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
   * Returns the figures. The player knows of the origin's frames only from those it received: it assumes all between
   * the first and the last.
   *
   * @param {FrameRecord[]} frames
   * @param {number} startUs
   * @param {number} endUs
   * @param {number} from the number of the first frame that counts, if not all do
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
