// Runs the golden vectors of `vectors/playout`, which the Rust code runs too.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { RenderClock } from "../playout/clock.js";
import { AHEAD_MAX, Decodable } from "../playout/decodable.js";
import { figures } from "../playout/figures.js";
import { Freshness } from "../playout/freshness.js";
import { JitterTarget } from "../playout/jitter.js";
import { Player } from "../playout/player.js";
import { Reorder } from "../playout/reorder.js";
import { Sequence } from "../playout/sequence.js";
import { STRATEGIES } from "../playout/strategy.js";
import { SILENCE_US, Succession } from "../playout/succession.js";

/**
 * @param {string} file
 * @returns {any}
 */
function load(file) {
  return JSON.parse(readFileSync(new URL(`../../vectors/playout/${file}`, import.meta.url), "utf8"));
}

test("Algorithm 1 waits as long as it should", () => {
  for (const vector of load("clock.json").vectors) {
    const clock = new RenderClock(vector.snap_us);
    for (const step of vector.steps) {
      if (step.pause) clock.pause();
      const wait = clock.timeUntil(step.now_us, step.presentation_us);
      assert.equal(wait, step.wait_us, `${vector.name}: ${JSON.stringify(step)}`);
      clock.onShown(step.presentation_us);
    }
  }
});

test("a frame needs all references before it, and frames after a gap are kept up to a limit", () => {
  const decodable = new Decodable();
  assert.ok(decodable.isDecodable(1, 0));
  for (let references = 1; references <= AHEAD_MAX + 1; references++) decodable.onReference(1, references);
  assert.equal(decodable.isDecodable(1, 1), false);
  assert.equal(decodable.groups.get(1)?.ahead.size, AHEAD_MAX);
  decodable.onReference(1, 0);
  decodable.onReference(1, 0);
  assert.ok(decodable.isDecodable(1, AHEAD_MAX + 1));
  assert.equal(decodable.isDecodable(1, AHEAD_MAX + 2), false);
  assert.equal(decodable.isDecodable(2, 1), false);
});

test("Algorithm 2 drops what is late and holds what is early", () => {
  const file = load("reorder.json");
  /** @type {Reorder<import("../playout/player.js").Arrival>} */
  const reorder = new Reorder(file.target_us);
  for (const step of file.steps) {
    const frame = arrival({ kind: step.kind, decode_us: step.decode_us, duration_us: file.duration_us });
    assert.equal(reorder.push(frame), !step.late, JSON.stringify(step));
    const out = [];
    for (let next = reorder.poll(); next; next = reorder.poll()) out.push(next.decodeUs);
    assert.deepEqual(out, step.out, JSON.stringify(step));
  }
});

test("the player shows each frame when it should", () => {
  for (const vector of load("player.json").vectors) {
    const player = new Player({
      buffering: "fixed_us" in vector.buffering
        ? { fixedUs: vector.buffering.fixed_us }
        : { minUs: vector.buffering.min_us, maxUs: vector.buffering.max_us },
      snapUs: vector.snap_us,
      reorders: vector.reorders,
      catchesUp: vector.catches_up,
      resumesAtOnce: vector.resumes_at_once === true,
      inSequence: false,
      stopsStale: false,
    });
    for (const step of vector.steps) {
      const place = `${vector.name}: ${JSON.stringify(step)}`;
      if (step.finish) player.finish(step.now_us);
      if (step.arrival) {
        assert.equal(player.push(step.now_us, arrival(step.arrival)), step.fate, place);
        continue;
      }
      /** @type {number[]} */
      const shown = [];
      /** @type {number[]} */
      const passed = [];
      for (let next = player.poll(step.now_us); next; next = player.poll(step.now_us)) {
        (next.isDecodable ? shown : passed).push(next.frame.presentationUs);
      }
      assert.deepEqual(shown, step.shown, place);
      assert.deepEqual(passed, step.passed ?? [], place);
      if ("rate" in step) assert.equal(player.clock.rate, step.rate, place);
      if ("next_us" in step) assert.equal(player.pollTimeout(step.now_us) ?? null, step.next_us, place);
    }
  }
});

test("figures are those of the player without a screen", () => {
  for (const vector of load("figures.json").vectors) {
    const found = figures(vector.records, vector.frames, vector.start_us, vector.end_us);
    assert.deepEqual(Object.keys(found).sort(), Object.keys(vector.figures).sort());
    for (const [name, expected] of Object.entries(vector.figures)) {
      const value = /** @type {any} */ (found)[name];
      const near = (/** @type {any} */ one, /** @type {any} */ other) =>
        one === other || Math.abs(one - other) < 1e-9 || assert.fail(`${vector.name}: ${name} is ${one}, not ${other}`);
      if (Array.isArray(expected)) expected.forEach((inner, place) => near(value[place], inner));
      else near(value, expected);
    }
  }
});

test("each strategy has the player that the origin's side means", () => {
  const file = load("strategies.json").strategies;
  assert.deepEqual(Object.keys(STRATEGIES).sort(), file.map((/** @type {any} */ one) => one.name).sort());
  for (const one of file) {
    const { tracks, player } = STRATEGIES[one.name];
    assert.deepEqual(tracks, one.tracks, one.name);
    assert.deepEqual(player, {
      buffering: { fixedUs: one.buffering.fixed_us },
      snapUs: one.snap_us,
      reorders: one.reorders,
      catchesUp: one.catches_up,
      resumesAtOnce: one.resumes_at_once,
      inSequence: one.in_sequence,
      stopsStale: one.stops_stale,
    }, one.name);
  }
});

test("groups pass one after the other", () => {
  /** @type {Sequence<string>} */
  const sequence = new Sequence();
  sequence.push(3, "a");
  assert.deepEqual(sequence.poll(), ["a"]);
  sequence.push(4, "d");
  sequence.push(5, "e");
  sequence.push(3, "b");
  sequence.end(4);
  assert.deepEqual(sequence.poll(), ["b"]);
  sequence.push(3, "c");
  sequence.end(3);
  assert.deepEqual(sequence.poll(), ["c", "d", "e"]);
});

test("a group that never ends does not hold the rest for ever", () => {
  /** @type {Sequence<number>} */
  const sequence = new Sequence();
  sequence.push(0, 0);
  sequence.poll();
  for (let group = 1; group <= 256; group++) {
    sequence.push(group, group);
    assert.deepEqual(sequence.poll(), []);
  }
  sequence.push(257, 0);
  assert.deepEqual(sequence.poll(), [1]);
});

test("a keyframe is refused only if a newer one can overtake it", () => {
  for (const vector of load("freshness.json").vectors) {
    const freshness = new Freshness();
    for (const step of vector.steps) {
      if (step.shown !== undefined) {
        freshness.noteShown(step.shown);
        continue;
      }
      const isWanted = freshness.isWanted(step.now_us, step.group, step.subgroup, step.kind, step.available_us);
      assert.equal(isWanted, step.wanted, `${vector.name}: ${JSON.stringify(step)}`);
    }
  }
});

test("the target follows the arrival of frames, within bounds", () => {
  const target = new JitterTarget({ minUs: 40_000, maxUs: 300_000 });
  assert.equal(target.targetUs(), 40_000);
  target.onArrival(1_000_000, 0);
  target.onArrival(1_150_000, 50_000);
  assert.equal(target.targetUs(), 100_000);
  target.onArrival(2_000_000, 100_000);
  assert.equal(target.targetUs(), 300_000);
  target.onArrival(5_000_000, 4_000_000);
  assert.equal(target.targetUs(), 40_000, "what is older than two seconds is forgotten");
});

/**
 * @param {any} frame
 * @returns {import("../playout/player.js").Arrival}
 */
function arrival(frame) {
  return {
    number: 0,
    kind: frame.kind,
    isDisposable: frame.kind === "B",
    group: frame.group ?? 0,
    references: frame.references ?? 0,
    decodeUs: frame.decode_us,
    presentationUs: frame.presentation_us ?? frame.decode_us,
    durationUs: frame.duration_us,
  };
}

/**
 * Returns who sent each of these frames, which are keyframes.
 *
 * @param {boolean} isTold
 * @param {...[group: number, number: number, availableUs: number, decodeUs: number, nowUs?: number]} frames
 */
function senders(isTold, ...frames) {
  const succession = new Succession();
  return frames.map(([group, number, availableUs, decodeUs, nowUs]) => succession.judge(nowUs ?? 0, { group, number, availableUs, decodeUs }, isTold, true));
}

test("one publisher stays the same in whichever order its frames come", () => {
  for (const isTold of [true, false]) {
    const succession = new Succession();
    for (const group of [100, 103, 101, 102, 104, 100]) {
      for (const within of [0, 14, 3]) {
        const us = (group * 15 + within) * 40_000;
        const seen = { group, number: group * 15 + within, availableUs: us, decodeUs: us };
        assert.equal(succession.judge(0, seen, isTold, within === 0), "same");
      }
    }
  }
});

test("who counts frames or groups anew is another, and what still comes of the first is of before", () => {
  const jumps = senders(
    true,
    [1000, 0, 1_000_000, 0],
    [1010, 150, 7_000_000, 6_000_000],
    // Ten seconds later, with the publisher's second group.
    [11_001, 15, 11_600_000, 600_000],
    [1010, 160, 7_400_000, 6_400_000],
    [1000, 3, 1_100_000, 100_000],
    [11_000, 14, 11_500_000, 500_000],
    [11_002, 30, 12_200_000, 1_200_000],
  );
  assert.deepEqual(jumps, ["same", "same", "another", "before", "before", "same", "same"]);
  assert.deepEqual(senders(true, [1000, 0, 1_000_000, 0], [4001, 15, 4_600_000, 600_000]), ["same", "another"]);
  const anew = senders(
    true,
    [50, 700, 30_000_000, 29_000_000],
    [0, 0, 40_000_000, 0],
    [51, 715, 30_600_000, 29_600_000],
    [1, 15, 40_600_000, 600_000],
  );
  assert.deepEqual(anew, ["same", "another", "before", "same"]);
});

test("where only media time tells it has to run back, and to lower groups only after a silence", () => {
  const timed = senders(false, [7, 0, 0, 9_000_000], [9, 0, 0, 8_600_000], [6, 0, 0, 0], [20, 0, 0, 100_000], [8, 0, 0, 9_600_000], [21, 0, 0, 700_000]);
  assert.deepEqual(timed, ["same", "same", "same", "another", "before", "same"]);
  assert.deepEqual(senders(false, [7, 0, 0, 9_000_000], [0, 0, 0, 0, SILENCE_US], [1, 0, 0, 600_000, SILENCE_US]), ["same", "another", "same"]);
});

test("a successor whose clock is behind is heard when the first is silent", () => {
  const found = senders(
    true,
    [9000, 300, 60_000_000, 12_000_000],
    [9500, 0, 31_900_000, 0, SILENCE_US - 1],
    [9500, 1, 32_000_000, 40_000, SILENCE_US],
    [9500, 2, 32_040_000, 80_000, SILENCE_US + 40_000],
  );
  assert.deepEqual(found, ["same", "before", "another", "same"]);
});
