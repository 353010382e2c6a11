import assert from "node:assert/strict";
import { test } from "node:test";

import { KEPT_US, Numbering, RECORDS_MAX, Records } from "../player/records.js";

const FRAME_US = 40_000;

/**
 * @param {number} number
 * @param {"I" | "P" | "B"} kind
 * @param {object} [more] of its tag
 * @returns {any}
 */
const frame = (number, kind, more = {}) => ({
  tag: { number, kind, availableUs: number * FRAME_US, presentationUs: number * FRAME_US, durationUs: FRAME_US, ...more },
  isTagged: true,
  bytes: 100,
});

test("what is left of a group that was not joined is not missed", () => {
  const records = new Records(0);
  for (const number of [3, 7]) records.add(frame(number, "B"), 0, 0);
  assert.equal(records.export(1e6, {}).figures.frames, 5);
  records.add(frame(14, "I"), 1, 0);
  records.add(frame(16, "P"), 1, 0);
  records.add(frame(28, "I"), 2, 0);
  assert.equal(records.export(1e6, {}).figures.frames, 15);
});

test("frames of one publisher after the other are counted on whatever their numbers are", () => {
  // The same cases as in the crate `live`.
  const numbering = new Numbering();
  assert.deepEqual([7, 9, 6].map((told) => numbering.number(told)), [7, 9, 6]);
  numbering.begin();
  assert.deepEqual([500, 502, 499].map((told) => numbering.number(told)), [10, 12, 9]);
  assert.equal(numbering.number(0), 0);
});

test("a publisher that begins anew takes nothing from the share that is shown", () => {
  const records = new Records(0);
  const play = (/** @type {any} */ one) => records.onShown(records.add(one, 1, 0), 0);
  for (let number = 40_000; number < 40_010; number++) play(frame(number, number === 40_000 ? "I" : "P"));
  records.interrupt();
  // Availability continues, media time and numbers start over.
  for (let number = 0; number < 10; number++) play(frame(number, number === 0 ? "I" : "P", { availableUs: (40_100 + number) * FRAME_US }));
  const { frames, figures } = records.export(1e6, {});
  assert.deepEqual([figures.frames, figures.shown], [20, 1]);
  assert.deepEqual(frames.slice(9, 11).map(({ number }) => number), [40_009, 40_010]);
});

test("what a publisher sends while the connection is lost is missed", () => {
  const records = new Records(0);
  for (const number of [0, 1, 2]) records.add(frame(number, number === 0 ? "I" : "P"), 1, 0);
  records.interrupt();
  for (const number of [123, 124]) records.add(frame(number, number === 123 ? "I" : "P"), 6, 0);
  assert.equal(records.export(1e6, {}).figures.frames, 125);
});

test("of another's publisher as many frames are known as came", () => {
  const records = new Records(0);
  const other = (/** @type {number} */ number) => ({ ...frame(number, "P"), isTagged: false });
  for (const number of [0, 1, 2]) records.add(other(number), 1, 0);
  records.interrupt();
  for (const number of [0, 1]) records.add(other(number), 9, 0);
  assert.deepEqual(records.frames.map(({ number }) => number), [0, 1, 2, 3, 4]);
});

test("half an hour of frames is kept, and figures are of these; the first picture is that of the run", () => {
  const records = new Records(0);
  const second = 1e6;
  // A keyframe of 1000 bits each second, for 50 minutes. Those of the first minute are ten times as large.
  for (let at = 0; at < 3000; at++) {
    const record = records.add({ ...frame(at, "I", { availableUs: at * second, presentationUs: at * second }), bytes: at < 60 ? 1250 : 125 }, at, at * second);
    records.onShown(record, at * second + (at === 0 ? 700_000 : 200_000));
  }
  const end = 3000 * second;
  const { frames, figures, started_us: started } = records.export(end, {});
  assert.ok(frames.length >= KEPT_US / second && frames.length <= (KEPT_US / second) * 1.13, `${frames.length}`);
  assert.equal(started, frames[0].arrived_us);
  assert.equal(figures.bit_rates[0], 1000);
  assert.deepEqual([figures.shown, figures.frames], [1, frames.length]);
  assert.equal(figures.time_to_first_frame, 0.7);
  assert.equal(records.byKind.I.received, 3000);
});

test("no more frames are kept than the limit says, at any rate", () => {
  const records = new Records(0);
  for (let number = 0; number < RECORDS_MAX; number++) records.add(frame(number, "P"), 0, 0);
  assert.equal(records.frames.length, RECORDS_MAX);
  assert.equal(records.keptSinceUs, 0);
  records.add(frame(RECORDS_MAX, "P"), 0, 7);
  // Half an hour at 120 frames a second is kept.
  assert.ok(records.frames.length < RECORDS_MAX && records.frames.length > 1800 * 120);
});

test("the age is that of the frame on the screen, not of the one that came last", () => {
  const records = new Records(0);
  const [key, ahead, between] = [frame(0, "I"), frame(4, "P"), frame(1, "B")].map((one) => records.add(one, 0, 0));
  assert.equal(records.ageUs(5), null);
  for (const record of [key, between]) records.onShown(record, 50_000);
  assert.equal(records.ageUs(100_000), 100_000 - FRAME_US);
  records.onShown(ahead, 200_000);
  assert.equal(records.ageUs(200_000), 200_000 - 4 * FRAME_US);
  const other = records.add({ ...frame(5, "P"), isTagged: false }, 0, 0);
  records.onShown(other, 300_000);
  assert.equal(records.ageUs(300_000), null, "its publisher does not say");
});
