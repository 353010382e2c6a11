import assert from "node:assert/strict";
import { test } from "node:test";

import { median, trends } from "../browser/trend.js";

const BOUNDS = [{ name: "heap", since: 2, ratioMax: 1.1, slack: 1 }];
/** @param {(minute: number) => number} heap */
const samples = (heap) => Array.from({ length: 120 }, (_, at) => ({ heap: heap(at / 2) }));

test("what grows is told from what is full after a while, and from a single disturbance", () => {
  const isFlat = (/** @type {(minute: number) => number} */ heap) => trends(samples(heap), BOUNDS)[0].isFlat;
  assert.equal(isFlat(() => 40), true);
  assert.equal(isFlat((minute) => Math.min(40, 20 + 2 * minute)), true, "full after ten minutes");
  assert.equal(isFlat((minute) => (minute === 50 ? 4000 : 40)), true, "a disturbance");
  assert.equal(isFlat((minute) => 40 + (minute % 7)), true, "a saw");
  assert.equal(isFlat((minute) => 40 + minute * 0.2), false, "12 MB in an hour");
  assert.equal(isFlat((minute) => (minute < 46 ? 40 : 60)), false, "it grew late");
});

test("at the bound it is flat, past it it is not", () => {
  const [found] = trends(samples((minute) => (minute < 30 ? 40 : 44)), BOUNDS);
  assert.deepEqual(found, { name: "heap", medians: [40, 40, 44, 44], since: 2, ratio: 1.1, isFlat: true });
  assert.equal(trends(samples((minute) => (minute < 30 ? 40 : 44.1)), BOUNDS)[0].isFlat, false);
});

test("what fills until the middle may grow until then", () => {
  const filling = samples((minute) => Math.min(minute, 30));
  assert.equal(trends(filling, BOUNDS)[0].isFlat, false);
  assert.equal(trends(filling, [{ ...BOUNDS[0], since: 3 }])[0].isFlat, true);
});

test("a value that is missing is never flat", () => {
  assert.ok(Number.isNaN(median([1, NaN, 3])));
  assert.equal(trends(samples((minute) => (minute > 45 ? NaN : 40)), BOUNDS)[0].isFlat, false);
  assert.throws(() => trends(samples(() => 1).slice(0, 3), BOUNDS), /four samples at the least/);
});
