/**
 * Counts the frames that were not shown, by kind.
 */

/**
 * @typedef {{ I: number, P: number, B: number }} ByKind
 * @typedef {import("../player/records.js").FrameRecord} FrameRecord
 */

/**
 * Counts the arrived frames that will not be shown, for any reason.
 *
 * Frames that arrived after the last shown one may still be shown. So may frames of its group that follow the picture
 * on the screen, since the frames that B-frames need arrive before them.
 *
 * @param {Readonly<Record<"I" | "P" | "B", { received: number, shown: number }>>} counters
 * @param {readonly FrameRecord[]} frames the last ones, in order of arrival
 * @returns {ByKind}
 */
export function droppedByKind(counters, frames) {
  const last = frames.findLastIndex(({ shown_us }) => shown_us !== null);
  const group = frames[last]?.group;
  let first = last + 1;
  let reachedUs = -Infinity;
  while (first > 0 && frames[first - 1].group === group) {
    first -= 1;
    const { shown_us, presentation_us } = frames[first];
    if (shown_us !== null) reachedUs = Math.max(reachedUs, presentation_us);
  }
  const waiting = { I: 0, P: 0, B: 0 };
  for (const { group: own, kind, presentation_us, shown_us } of frames.slice(first)) {
    if (shown_us === null && (own !== group || presentation_us > reachedUs)) waiting[kind] += 1;
  }
  const dropped = (/** @type {"I" | "P" | "B"} */ kind) => Math.max(0, counters[kind].received - counters[kind].shown - waiting[kind]);
  return { I: dropped("I"), P: dropped("P"), B: dropped("B") };
}
