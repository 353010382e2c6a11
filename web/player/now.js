/**
 * The time of day in microseconds since 1970, which origin and player share on one machine.
 *
 * `performance.now()` runs smoothly but is set by the time of day only once, so the two are compared at intervals.
 */

/** The interval of comparisons, in milliseconds. */
const COMPARE_MS = 1000;
/** Differences up to this are the clock's resolution, in milliseconds. */
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
