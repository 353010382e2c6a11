// The testbed with a browser as its player: one short run behind the emulated link. The variable WEIR names the
// program; without it the test is skipped.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

import { STORY_MS, WEIR } from "./stage.js";

const skip = WEIR === "" ? "WEIR does not name the program" : false;
/** The delay of the link in each direction, in milliseconds. */
const DELAY_MS = 150;

test("the testbed plays to a browser behind a link, and tells what was seen there", { skip, timeout: STORY_MS }, async () => {
  const folder = mkdtempSync(join(tmpdir(), "weir-lab-"));
  try {
    const [trace, report] = [join(folder, "generous.mahimahi"), join(folder, "runs.json")];
    // A packet of 1,504 bytes each millisecond: 12 Mbit/s.
    writeFileSync(trace, Array.from({ length: 100 }, (_, place) => `${place + 1}\n`).join(""));
    /** @param {string} time how long it plays */
    const play = async (time) => {
      // If the program exits with another code than zero, this fails with the program's error text.
      const { stdout } = await promisify(execFile)(WEIR, [
        "live", "lab", "--browser", "--trace", trace, "--trace-time", time, "--delay", `${DELAY_MS}ms`, "--strategies", "weir", "--json", report,
      ]);
      assert.match(stdout, /weir/);
      const runs = JSON.parse(readFileSync(report, "utf8"));
      assert.deepEqual(runs.map((/** @type {any} */ { link, strategy, seed }) => [link, strategy, seed]), [[trace, "weir", 1]]);
      return runs[0].figures;
    };
    const isSeen = (/** @type {any} */ { frames, shown }) => frames > 24 && shown > 0;
    // On a busy machine a browser needs more time than a short run before it shows anything.
    let figures = await play("10s");
    if (!isSeen(figures)) figures = await play("60s");
    if (!isSeen(figures)) figures = await play("300s");
    console.log(`${figures.frames} frames, ${(figures.shown * 100).toFixed(1)} % shown; latency mean ${figures.latency_mean?.toFixed(3)} s, ` +
      `p95 ${figures.latency_p95?.toFixed(3)} s; first picture after ${figures.time_to_first_frame?.toFixed(2)} s`);
    assert.ok(isSeen(figures), "frames were shown");
    // No frame can be faster than the link.
    for (const name of ["latency_mean", "latency_p95", "latency_max", "age_mean", "age_max"]) {
      assert.ok(figures[name] >= DELAY_MS / 1000, `${name} is ${figures[name]}`);
    }
    assert.ok(figures.on_time >= 0 && figures.queueing_mean >= 0 && figures.time_to_first_frame > 0);
    assert.ok(figures.bit_rates.every((/** @type {number} */ rate) => rate > 0), "frames of all kinds arrived");
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
