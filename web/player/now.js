/**
 * The time of day in microseconds since 1970, as origin and player share it on one machine.
 *
 * `performance.now()` runs smoothly but is set to the time of day only once; so it is compared with that now and then.
 */

/** How often, in milliseconds. */
const COMPARE_MS = 1000;
/** Differences up to this, in milliseconds, are the clock's resolution. */
const RESOLUTION_MS = 2;

let comparedAt = -Infinity;
let offsetMs = 0;

/** @returns {number} an integer */
export function nowUs() {
  const elapsed = performance.now();
  if (elapsed - comparedAt > COMPARE_MS) {
    comparedAt = elapsed;
    const difference = Date.now() - (performance.timeOrigin + elapsed);
    if (Math.abs(difference - offsetMs) > RESOLUTION_MS) offsetMs = difference;
  }
  return Math.round((performance.timeOrigin + elapsed + offsetMs) * 1000);
}
