import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { find, parse } from "../player/boxes.js";
import { initTracks, planOfInit, readCatalog } from "../player/catalog.js";
import { frameKind, withReorderFrames } from "../player/h264.js";
import { readFragment, readInit } from "../player/mp4.js";
import { readTag, writeTag } from "../player/tag.js";

/** What ffmpeg made; the crate `live` tests with the same file. */
const FILE = new Uint8Array(readFileSync(new URL("../../crates/live/tests/media/audio-video.mp4", import.meta.url)));

function segment() {
  const moov = find(parse(FILE), "moov");
  assert.ok(moov);
  return FILE.subarray(0, moov.at + moov.body.length);
}

test("an init segment tells what decoders have to know", () => {
  const tracks = readInit(segment());
  assert.deepEqual(tracks.map((track) => track.media), ["video", "audio"]);
  const [video, audio] = tracks;
  assert.match(video.codec, /^avc1\.64/);
  assert.equal(video.description?.[0], 1, "an avcC box begins with its version");
  assert.equal(audio.codec, "mp4a.40.2");
  assert.equal((audio.description?.[0] ?? 0) >> 3, 2, "low complexity AAC");
});

test("fragments have frames of a known kind in the order of decoding", () => {
  const tracks = readInit(segment());
  const boxes = parse(FILE);
  let kinds = "";
  let previous = -1;
  boxes.forEach((box, place) => {
    if (box.type !== "moof") return;
    const mdat = boxes[place + 1];
    const samples = readFragment(FILE.subarray(box.start, mdat.at + mdat.body.length), tracks);
    for (const sample of samples.filter((one) => one.trackId === tracks[0].id)) {
      assert.ok(sample.decodeUs > previous);
      previous = sample.decodeUs;
      kinds += frameKind(sample.data)?.kind;
    }
  });
  assert.match(kinds, /^I[PB]+/);
});

test("a broken file is an error and never more", () => {
  const whole = segment();
  for (let length = 0; length < whole.length; length += 7) {
    assert.throws(() => planOfInit(whole.subarray(0, length), ["video"], undefined), (error) => error instanceof Error);
  }
});

test("a parameter set is rewritten with the number of frames held back", () => {
  // x264's with three B-frames in a row, which says 1.
  const avcC = unhex("0164000cffe1001a6764000cacd101419f9f011000000300100000030300f142912001000568ebecb22cfdf8f800");
  const none = withReorderFrames(avcC, 0);
  assert.notDeepEqual(none, avcC);
  assert.equal(none.length, avcC.length);
  assert.deepEqual(none.subarray(-12), avcC.subarray(-12), "what stands behind is kept");
  assert.deepEqual(withReorderFrames(none, 2), withReorderFrames(avcC, 2));
  const short = avcC.subarray(0, 12);
  assert.equal(withReorderFrames(short, 0), short, "what cannot be read is left alone");
});

test("a catalog of ours, of another, and none", () => {
  const text = (/** @type {unknown} */ value) => new TextEncoder().encode(JSON.stringify(value));
  const base64 = Buffer.from(segment()).toString("base64");
  const ours = readCatalog(text({
    version: "draft-01",
    weirStrategy: "combined",
    tracks: [
      { name: "video-disposable", packaging: "cmaf", role: "video", codec: "avc1.64001f", initRef: "init", depends: ["video"] },
      { name: "video", packaging: "cmaf", role: "video", codec: "avc1.64001f", initRef: "init" },
      { name: "audio-2", packaging: "cmaf", role: "audio", codec: "mp4a.40.2", initRef: "init" },
      { name: "timeline", packaging: "mediatimeline" },
    ],
    initDataList: [{ id: "init", type: "inline", data: base64 }],
  }));
  assert.equal(ours.strategy, "combined");
  assert.deepEqual(ours.video.map((track) => track.name), ["video", "video-disposable"]);
  assert.equal(ours.video[0].description?.[0], 1);
  assert.equal(ours.audio?.name, "audio-2");
  const other = readCatalog(text({
    version: 1,
    tracks: [
      { name: "hd", packaging: "loc", codec: "avc1.42e01e", initData: "AQID", timescale: 90000 },
      { name: "sd", packaging: "loc", codec: "avc1.42e01e" },
    ],
  }));
  assert.deepEqual(other.video.map((track) => track.name), ["hd"]);
  assert.deepEqual(other.video[0].description, Uint8Array.of(1, 2, 3));
  assert.throws(() => readCatalog(new TextEncoder().encode("{")), /cannot be read/);
  assert.throws(() => readCatalog(text({ tracks: [] })), /no video/);
  assert.throws(() => readCatalog(text([])), /lists no tracks/);
});

test("the tag of a frame is read and written as in Rust", () => {
  const file = JSON.parse(readFileSync(new URL("../../vectors/live/frame-tag.json", import.meta.url), "utf8"));
  for (const { name, hex, tag, error } of file.vectors) {
    const read = readTag(unhex(hex));
    if (error) {
      assert.equal(read, undefined, name);
      continue;
    }
    const expected = {
      kind: tag.kind,
      isDisposable: tag.is_disposable,
      references: tag.references,
      availableUs: tag.available_us,
      decodeUs: tag.decode_us,
      presentationUs: tag.presentation_us,
      durationUs: tag.duration_us,
      number: tag.number,
    };
    assert.deepEqual(read, expected, name);
    assert.equal(Buffer.from(writeTag(expected)).toString("hex"), hex, name);
  }
});

/** @param {string} hex */
function unhex(hex) {
  return new Uint8Array(Buffer.from(hex, "hex"));
}

test("a catalog of the format before MSF is read, with its init track", () => {
  const json = new TextEncoder().encode(JSON.stringify({
    version: 1,
    streamingFormat: 1,
    commonTrackFields: { namespace: "/live", packaging: "cmaf", renderGroup: 1 },
    tracks: [
      { name: "1.m4s", initTrack: "0.mp4", selectionParams: { codec: "avc1.42C01E", width: 640, height: 360 } },
      { name: "2.m4s", initTrack: "0.mp4", selectionParams: { codec: "mp4a.40.2", samplerate: 48000, channelConfig: "2" } },
    ],
  }));
  assert.deepEqual(initTracks(json), ["0.mp4"]);
  const { video, audio } = readCatalog(json, new Map([["0.mp4", segment()]]));
  assert.equal(video[0].name, "1.m4s");
  assert.equal(video[0].packaging, "cmaf");
  assert.match(video[0].codec, /^avc1\.64/, "the init segment knows better");
  assert.equal(audio?.name, "2.m4s");
  assert.ok(audio?.description);
  assert.deepEqual(readCatalog(json).video[0].init, [], "without its init track it is known and cannot be decoded");
});

test("a catalog names a few init tracks at the most, and fields of a wrong kind are left out", () => {
  const catalog = (/** @type {unknown[]} */ tracks) => new TextEncoder().encode(JSON.stringify({ tracks }));
  const many = (/** @type {number} */ count) => Array.from({ length: count }, (_, place) => ({ name: `${place}`, initTrack: `${place}.mp4` }));
  assert.equal(initTracks(catalog(many(8))).length, 8);
  assert.equal(initTracks(catalog(many(9))).length, 8);
  assert.deepEqual(initTracks(catalog([null, 3, { initTrack: 7 }, {}])), []);
  assert.throws(() => initTracks(new TextEncoder().encode("{}")), /lists no tracks/);
  assert.throws(() => readCatalog(catalog([null, "x", { name: "1.m4s", packaging: 1 }])), /no video that this player knows/);
});
