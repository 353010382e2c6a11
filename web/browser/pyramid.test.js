// A real browser's decoder with a pyramid of B-frames, complete and without disposable frames. The variable WEIR names
// the program; without it these tests are skipped. Times are reported, never asserted.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { parse } from "../player/boxes.js";
import { frameKind } from "../player/h264.js";
import { readFragment, readInit } from "../player/mp4.js";
import { STORY_MS, Stage, WEIR } from "./stage.js";

const stage = new Stage();
const skip = WEIR === "" ? "WEIR does not name the program" : false;
let whole = "";

before(() => {
  if (skip) return;
  whole = join(stage.folder, "pyramid.mp4");
  execFileSync("ffmpeg", [
    "-hide_banner", "-loglevel", "error", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=24", "-t", "90", "-pix_fmt", "yuv420p", "-c:v", "libx264",
    "-preset", "ultrafast", "-b:v", "300k", "-g", "24", "-bf", "3", "-sc_threshold", "0", "-x264-params", "b-pyramid=normal:b-adapt=0", "-f", "mp4",
    "-movflags", "cmaf+frag_every_frame+empty_moov+default_base_moof", whole,
  ]);
});
after(() => stage.end());

/** @returns {string} the stream without disposable frames */
function withoutDisposable() {
  const file = new Uint8Array(readFileSync(whole));
  const boxes = parse(file);
  const moov = boxes.findIndex(({ type }) => type === "moov");
  const endOf = (/** @type {number} */ place) => boxes[place].at + boxes[place].body.length;
  const tracks = readInit(file.subarray(0, endOf(moov)));
  const parts = [file.subarray(0, endOf(moov))];
  boxes.forEach(({ type, start }, place) => {
    if (type !== "moof") return;
    const fragment = file.subarray(start, endOf(place + 1));
    const [sample] = readFragment(fragment, tracks);
    if (!frameKind(sample.data)?.isDisposable) parts.push(fragment);
  });
  const path = join(stage.folder, "without.mp4");
  writeFileSync(path, Buffer.concat(parts));
  return path;
}

/**
 * Checks that the export has the form of the output of `weir live play --json`.
 *
 * @param {any} report
 */
function assertForm(report) {
  const form = JSON.parse(readFileSync(new URL("../../vectors/live/report.json", import.meta.url), "utf8"));
  assert.equal(report.schema, form.schema);
  const parts = { report, track: report.tracks[0], figures: report.figures, frame: report.frames[0] };
  for (const [part, value] of Object.entries(parts)) assert.deepEqual(Object.keys(value).toSorted(), form[part], part);
}

for (const [name, clip] of /** @type {const} */ ([["a whole pyramid", () => whole], ["a pyramid without the B-frames that no other needs", withoutDisposable]])) {
  test(`${name} is shown in order`, { skip, timeout: STORY_MS }, async () => {
    const { program, ready } = await stage.weir(["live", "watch", "--page", "127.0.0.1:0", "--input", clip()]);
    const watched = await stage.open(ready.page);
    await watched.says("live");
    await watched.draws(96);
    // A busy machine shows some too late. A decoder without a reorder buffer returns almost none of them in time.
    await watched.page.waitForFunction("{ const { B } = weir.figures().byKind; B.shown * 4 > B.received; }");
    const { byKind, video, isBaseOnly } = await watched.figures();
    console.log(`B-frames shown ${byKind.B.shown} of ${byKind.B.received}, P-frames ${byKind.P.shown} of ${byKind.P.received}`);
    assert.equal(isBaseOnly, false);
    assert.equal(video.errors, 0);
    assert.deepEqual(stage.complaints, []);
    assertForm(/** @type {any} */ (await watched.page.evaluate("weir.export()")));
    await watched.page.context().close();
    await program.end("SIGINT");
  });
}
