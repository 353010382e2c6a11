/**
 * What a viewer saw, in numbers: the same figures as those of `weir live play`, under the same names.
 */

/** A frame shown later than this after it was available does not count as on time, in microseconds. */
export const DEADLINE_US = 500_000;
/** A picture that stands still for longer than this is a freeze, in microseconds. */
export const FREEZE_US = 500_000;

const KINDS = /** @type {const} */ (["I", "P", "B"]);

/**
 * What became of one frame; times in microseconds.
 *
 * @typedef {object} FrameRecord
 * @property {number} group
 * @property {import("./reorder.js").Kind} kind
 * @property {number} bytes of the coded frame with its container
 * @property {number} presentation_us media time
 * @property {number} available_us when the origin had it
 * @property {number} arrived_us when its last byte arrived
 * @property {number | null} shown_us when it was shown, if it was
 */

/**
 * Figures of a run; times in seconds.
 *
 * @typedef {object} Figures
 * @property {number} frames that the origin had
 * @property {number} shown share of them that was shown
 * @property {number} on_time share of them that was shown within the deadline
 * @property {number} latency_mean from availability to rendering
 * @property {number} latency_p95
 * @property {number} latency_max
 * @property {number} age_mean of what was on the screen, over time
 * @property {number} age_max
 * @property {number} freezes how often the picture stood still
 * @property {number} freeze_total
 * @property {number} freeze_longest the longest time between two pictures
 * @property {number | null} time_to_first_frame
 * @property {number} queueing_mean by how much frames arrived later than the quickest one
 * @property {number[]} bit_rates received bits per second of I-, P- and B-frames
 */

/**
 * Adds up what became of the frames of a run.
 *
 * @param {FrameRecord[]} records
 * @param {number} frames how many the origin had
 * @param {number} startUs
 * @param {number} endUs
 * @returns {Figures}
 */
export function figures(records, frames, startUs, endUs) {
  /** @type {[shown: number, available: number][]} */
  const shown = [];
  for (const record of records) {
    if (record.shown_us !== null) shown.push([record.shown_us, record.available_us]);
  }
  shown.sort((one, other) => one[0] - other[0] || one[1] - other[1]);
  const latencies = shown.map(([at, available]) => at - available).sort((one, other) => one - other);
  const share = (/** @type {number} */ count) => count / Math.max(frames, 1);
  return {
    frames,
    shown: share(shown.length),
    on_time: share(latencies.filter((latency) => latency <= DEADLINE_US).length),
    latency_mean: seconds(mean(latencies)),
    latency_p95: seconds(percentile(latencies, 95)),
    latency_max: seconds(latencies.at(-1) ?? 0),
    ...screen(shown, endUs),
    time_to_first_frame: shown.length > 0 ? seconds(shown[0][0] - startUs) : null,
    queueing_mean: queueing(records),
    bit_rates: KINDS.map((kind) => {
      const bytes = records.reduce((sum, record) => sum + (record.kind === kind ? record.bytes : 0), 0);
      return endUs > startUs ? (bytes * 8) / seconds(endUs - startUs) : 0;
    }),
  };
}

/**
 * The value below which so many percent lie.
 *
 * @param {number[]} sorted
 * @param {number} percent
 * @returns {number} 0 if there is none
 */
export function percentile(sorted, percent) {
  const rank = Math.max(1, Math.ceil((sorted.length * percent) / 100));
  return sorted[rank - 1] ?? 0;
}

/**
 * Age and freezes: what was on the screen until the next frame or the end.
 *
 * @param {[shown: number, available: number][]} shown
 * @param {number} endUs
 */
function screen(shown, endUs) {
  const out = { age_mean: 0, age_max: 0, freezes: 0, freeze_total: 0, freeze_longest: 0 };
  let area = 0;
  let time = 0;
  shown.forEach(([from, available], place) => {
    const until = place + 1 < shown.length ? shown[place + 1][0] : endUs;
    const young = seconds(from - available);
    const old = seconds(until - available);
    const stood = Math.max(0, old - young);
    area += (stood * (young + old)) / 2;
    time += stood;
    out.age_max = Math.max(out.age_max, old);
    out.freeze_longest = Math.max(out.freeze_longest, stood);
    if (stood > seconds(FREEZE_US)) {
      out.freezes += 1;
      out.freeze_total += stood;
    }
  });
  out.age_mean = time > 0 ? area / time : 0;
  return out;
}

/** @param {FrameRecord[]} records */
function queueing(records) {
  const transits = records.map((record) => record.arrived_us - record.available_us);
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
