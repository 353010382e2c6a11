// Detects growth during a long run, by the medians of quarters of the time, which single disturbances do not affect.

/**
 * @typedef {object} Bound
 * @property {string} name what is measured, as in the table
 * @property {number} since the quarter, from 1, that the last one is compared with: caches must be full by then
 * @property {number} ratioMax the largest ratio of the last quarter's median to that quarter's
 * @property {number} slack growth that is always allowed, in its own unit
 *
 * @typedef {object} Trend
 * @property {string} name
 * @property {number[]} medians of the four quarters
 * @property {number} since
 * @property {number} ratio of the last quarter's median to that of quarter `since`
 * @property {boolean} isFlat
 */

/**
 * @param {Record<string, number>[]} samples in order of time
 * @param {Bound[]} bounds
 * @returns {Trend[]}
 */
export function trends(samples, bounds) {
  if (samples.length < 4) throw new Error(`four samples at the least make four quarters: there are ${samples.length}`);
  return bounds.map(({ name, since, ratioMax, slack }) => {
    const medians = [0, 1, 2, 3].map((quarter) => {
      const part = samples.slice(Math.floor((samples.length * quarter) / 4), Math.floor((samples.length * (quarter + 1)) / 4));
      return median(part.map((sample) => sample[name]));
    });
    const [first, last] = [medians[since - 1], medians[3]];
    return { name, medians, since, ratio: last / first, isFlat: last <= Math.max(first * ratioMax, first + slack) };
  });
}

/**
 * @param {number[]} values
 * @returns {number} NaN if a value is not a number
 */
export function median(values) {
  const sorted = values.toSorted((one, other) => one - other);
  const middle = Math.floor(sorted.length / 2);
  if (values.some((value) => !Number.isFinite(value))) return NaN;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
