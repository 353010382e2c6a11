/**
 * For each delivery strategy, its tracks and the settings of its player (`crates/live/src/strategy`).
 */

/**
 * The shortest gap that B-frames cannot cause. At 24 frames per second and more, at most three B-frames follow each
 * other.
 */
const SNAP_US = 250_000;

/** @typedef {import("./player.js").PlayerSettings} PlayerSettings */

/** The player of the thesis: a jitter buffer of 100 ms.
 *
 * @type {PlayerSettings} */
const THESIS = {
  buffering: { fixedUs: 100_000 },
  snapUs: null,
  reorders: false,
  catchesUp: false,
  resumesAtOnce: false,
  inSequence: false,
  stopsStale: false,
};

/** @type {Readonly<Record<string, { tracks: string[], player: PlayerSettings }>>} */
export const STRATEGIES = Object.freeze({
  baseline: { tracks: ["video"], player: { ...THESIS, inSequence: true } },
  "deprioritize-b": { tracks: ["video", "video-disposable"], player: { ...THESIS, reorders: true, inSequence: true } },
  skip: { tracks: ["video"], player: { ...THESIS, snapUs: SNAP_US } },
  combined: { tracks: ["video", "video-disposable"], player: { ...THESIS, reorders: true, snapUs: SNAP_US } },
  weir: {
    tracks: ["video"],
    player: { ...THESIS, snapUs: SNAP_US, catchesUp: true, resumesAtOnce: true, stopsStale: true },
  },
});
