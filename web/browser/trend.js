// Whether something grew while a page played for long: medians of quarters of the time, which single disturbances do not move.

/**
 * @typedef {object} Bound
 * @property {string} name what is measured, as the table calls it
 * @property {number} ratioMax how many times the median of the second quarter that of the last may be
 * @property {number} slack what it may be above that at any rate, in its own unit
 *
 * @typedef {object} Trend
 * @property {string} name
 * @property {number[]} medians of the four quarters
 * @property {number} ratio of the last quarter's median to the second's
 * @property {boolean} isFlat
 */

/**
 * The first quarter is the beginning, in which buffers and caches fill; from the second on nothing may grow.
 *
 * @param {Record<string, number>[]} samples in the order of their times
 * @param {Bound[]} bounds
 * @returns {Trend[]}
 */
export function trends(samples, bounds) {
  if (samples.length < 4) throw new Error(`four samples at the least make four quarters: there are ${samples.length}`);
  return bounds.map(({ name, ratioMax, slack }) => {
    const medians = [0, 1, 2, 3].map((quarter) => {
      const part = samples.slice(Math.floor((samples.length * quarter) / 4), Math.floor((samples.length * (quarter + 1)) / 4));
      return median(part.map((sample) => sample[name]));
    });
    const [, second, , last] = medians;
    return { name, medians, ratio: last / second, isFlat: last <= Math.max(second * ratioMax, second + slack) };
  });
}

/**
 * @param {number[]} values
 * @returns {number} NaN if one of them is no number
 */
export function median(values) {
  const sorted = values.toSorted((one, other) => one - other);
  const middle = Math.floor(sorted.length / 2);
  if (values.some((value) => !Number.isFinite(value))) return NaN;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
