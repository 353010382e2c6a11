/**
 * Formats numbers for people.
 */

/**
 * @param {number | null | undefined} value in seconds
 * @returns {string}
 */
export function seconds(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return Math.abs(value) < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(2)} s`;
}

/**
 * @param {number} value in bits per second
 * @returns {string}
 */
export function bitRate(value) {
  return value >= 1e6 ? `${(value / 1e6).toFixed(1)} Mbit/s` : `${Math.round(value / 1e3)} kbit/s`;
}

/**
 * @param {number} share 0 to 1
 * @returns {string}
 */
export function percent(share) {
  return `${(share * 100).toFixed(share > 0.995 || share === 0 ? 0 : 1)} %`;
}

/**
 * Returns an element that must exist in the page.
 *
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} type
 * @returns {T}
 */
export function element(id, type) {
  const found = document.getElementById(id);
  if (!(found instanceof type)) throw new Error(`the page has no ${id}`);
  return found;
}
