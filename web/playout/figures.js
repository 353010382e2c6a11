/**
 * The figures of what a viewer saw: the same as those of `weir live play`, under the same names.
 */

/** A frame shown longer than this after it was available does not count as on time, in microseconds. */
export const DEADLINE_US = 500_000;
/** A longer stop of the picture is a freeze, in microseconds. */
export const FREEZE_US = 500_000;

const KINDS = /** @type {const} */ (["I", "P", "B"]);

/**
 * The fate of one frame. Times are in microseconds.
 *
 * @typedef {object} FrameRecord
 * @property {number} group
 * @property {import("./reorder.js").Kind} kind
 * @property {number} bytes the coded frame with its container
 * @property {number} presentation_us media time
 * @property {number | null} available_us when the origin had it; null if unknown
 * @property {number} arrived_us when its last byte arrived
 * @property {number | null} shown_us when it was shown, if it was
 */

/**
 * Figures of a run. Times are in seconds.
 *
 * @typedef {object} Seen
 * @property {number} frames the origin's frames
 * @property {number} shown share of the frames that was shown
 * @property {number} freezes how often the picture froze
 * @property {number} freeze_total
 * @property {number} freeze_longest the longest time between two pictures
 * @property {number | null} time_to_first_frame
 * @property {number[]} bit_rates received bits per second of I-, P- and B-frames
 *
 * @typedef {object} Delays figures that count from availability, of the frames whose availability is known
 * @property {number} on_time share of the origin's frames that was shown within the deadline
 * @property {number} latency_mean mean from availability to rendering
 * @property {number} latency_p95
 * @property {number} latency_max
 * @property {number} age_mean mean age of the picture on the screen, over time
 * @property {number} age_max
 * @property {number} queueing_mean mean arrival delay, compared with the fastest frame
 *
 * @typedef {Seen & Partial<Delays>} Figures without delays if no arrived frame has a known availability
 *
 * @typedef {{ from: number, available: number | null, until: number }} Stay a frame on the screen, until the next one or the end
 */

/**
 * Computes the figures of a run.
 *
 * @param {FrameRecord[]} records
 * @param {number} frames the number of the origin's frames
 * @param {number} startUs
 * @param {number} endUs
 * @returns {Figures}
 */
export function figures(records, frames, startUs, endUs) {
  const shown = stays(records, endUs);
  const out = {
    frames,
    shown: shown.length / Math.max(frames, 1),
    freezes: 0,
    freeze_total: 0,
    freeze_longest: 0,
    time_to_first_frame: shown.length > 0 ? seconds(shown[0].from - startUs) : null,
    bit_rates: KINDS.map((kind) => {
      const bytes = records.reduce((sum, record) => sum + (record.kind === kind ? record.bytes : 0), 0);
      return endUs > startUs ? (bytes * 8) / seconds(endUs - startUs) : 0;
    }),
  };
  for (const stay of shown) {
    const stood = lasted(stay);
    out.freeze_longest = Math.max(out.freeze_longest, stood);
    if (stood > seconds(FREEZE_US)) {
      out.freezes += 1;
      out.freeze_total += stood;
    }
  }
  const hasDelays = records.length === 0 || records.some((record) => record.available_us !== null);
  return hasDelays ? { ...out, ...delays(records, shown, frames) } : out;
}

/**
 * Returns the percentile of sorted values.
 *
 * @param {number[]} sorted
 * @param {number} percent
 * @returns {number} 0 without values
 */
export function percentile(sorted, percent) {
  const rank = Math.max(1, Math.ceil((sorted.length * percent) / 100));
  return sorted[rank - 1] ?? 0;
}

/**
 * Returns the sequence of frames on the screen.
 *
 * @param {FrameRecord[]} records
 * @param {number} endUs
 * @returns {Stay[]}
 */
function stays(records, endUs) {
  /** @type {Stay[]} */
  const shown = [];
  for (const { shown_us: from, available_us: available } of records) {
    if (from !== null) shown.push({ from, available, until: endUs });
  }
  shown.sort((one, other) => one.from - other.from || (one.available ?? -Infinity) - (other.available ?? -Infinity));
  shown.slice(1).forEach((next, place) => {
    shown[place].until = next.from;
  });
  return shown;
}

/** @param {Stay} stay */
function lasted({ from, until }) {
  return Math.max(0, seconds(until - from));
}

/**
 * @param {FrameRecord[]} records
 * @param {Stay[]} shown
 * @param {number} frames
 * @returns {Delays}
 */
function delays(records, shown, frames) {
  const latencies = shown.flatMap(({ from, available }) => (available === null ? [] : [from - available]));
  latencies.sort((one, other) => one - other);
  let area = 0;
  let time = 0;
  let oldest = 0;
  for (const stay of shown) {
    if (stay.available === null) continue;
    const young = seconds(stay.from - stay.available);
    const old = seconds(stay.until - stay.available);
    area += (lasted(stay) * (young + old)) / 2;
    time += lasted(stay);
    oldest = Math.max(oldest, old);
  }
  return {
    on_time: latencies.filter((latency) => latency <= DEADLINE_US).length / Math.max(frames, 1),
    latency_mean: seconds(mean(latencies)),
    latency_p95: seconds(percentile(latencies, 95)),
    latency_max: seconds(latencies.at(-1) ?? 0),
    age_mean: time > 0 ? area / time : 0,
    age_max: oldest,
    queueing_mean: queueing(records),
  };
}

/** @param {FrameRecord[]} records */
function queueing(records) {
  const transits = records.flatMap(({ arrived_us, available_us }) => (available_us === null ? [] : [arrived_us - available_us]));
  const quickest = transits.reduce((least, transit) => Math.min(least, transit), Infinity);
  return transits.length > 0 ? seconds(mean(transits) - quickest) : 0;
}

/** @param {number[]} values */
function mean(values) {
  return values.length > 0 ? values.reduce((sum, value) => sum + value, 0) / values.length : 0;
}

/** @param {number} microseconds */
function seconds(microseconds) {
  return microseconds / 1e6;
}
