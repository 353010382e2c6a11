import assert from "node:assert/strict";
import { test } from "node:test";

import { Records } from "../player/records.js";

/**
 * @param {number} number
 * @param {"I" | "P" | "B"} kind
 */
const frame = (number, kind) => ({
  tag: { number, kind, availableUs: 0, presentationUs: number * 40_000, durationUs: 40_000 },
  isTagged: true,
  bytes: 100,
});

test("what is left of a group that was not joined is not missed", () => {
  const records = new Records(0);
  for (const number of [3, 7]) records.add(/** @type {any} */ (frame(number, "B")), 0, 0);
  assert.equal(records.export(1e6, {}).figures.frames, 5);
  records.add(/** @type {any} */ (frame(14, "I")), 1, 0);
  records.add(/** @type {any} */ (frame(16, "P")), 1, 0);
  records.add(/** @type {any} */ (frame(28, "I")), 2, 0);
  assert.equal(records.export(1e6, {}).figures.frames, 15);
});
