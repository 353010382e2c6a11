/**
 * Which frames were not shown, by kind.
 */

/**
 * @typedef {{ I: number, P: number, B: number }} ByKind
 * @typedef {import("../player/records.js").FrameRecord} FrameRecord
 */

/**
 * How many of the frames that arrived will not be shown any more, for whatever reason.
 *
 * What arrived after the last one that was shown may still be, and of its group what belongs after what is on the screen: frames
 * that B-frames need come before them.
 *
 * @param {Readonly<Record<"I" | "P" | "B", { received: number, shown: number }>>} counters
 * @param {readonly FrameRecord[]} frames the last ones, in the order of arrival
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
