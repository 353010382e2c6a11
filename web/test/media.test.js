import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { BOXES_MAX, find, parse } from "../player/boxes.js";
import { HELD_BYTES_MAX, LAYERS_MAX, initTracks, planOfInit, readCatalog } from "../player/catalog.js";
import { frameKind, lengthBytesOf, withReorderFrames } from "../player/h264.js";
import { SAMPLES_PER_FRAGMENT_MAX, TRACKS_MAX, readFragment, readInit } from "../player/mp4.js";
import { GROUPS_MAX, LocClock, Unpacker } from "../player/packaging.js";
import { readTag, writeTag } from "../player/tag.js";

/** A file from ffmpeg. The crate `live` tests with the same file. */
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
  // From x264 with three B-frames in a row, which declares 1.
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
  assert.throws(() => readCatalog(catalog([null, "x", { name: "1.m4s", packaging: 1 }])), /no video that this player can decode/);
});

/**
 * Returns an MP4 box.
 *
 * @param {string} type
 * @param {...(number[] | Uint8Array)} parts bytes
 */
function box(type, ...parts) {
  const body = parts.flatMap((part) => [...part]);
  return Uint8Array.from([...u32(8 + body.length), ...new TextEncoder().encode(type), ...body]);
}

/** @param {number} value */
function u32(value) {
  return [24, 16, 8, 0].map((shift) => (value >>> shift) & 0xff);
}

/** @type {import("../player/mp4.js").Mp4Track[]} */
const TRACKS = [{ id: 1, media: "video", codec: "avc1", timescale: 1000, defaults: { duration: 40, size: 2 } }];

/**
 * Returns a fragment of equal samples, with a run for each count.
 *
 * @param {number[]} counts
 * @param {number} bytes of the `mdat` box
 * @param {number} [decode] decode time of the first sample
 */
function fragment(counts, bytes, decode = 0) {
  const runs = counts.map((count) => box("trun", u32(0), u32(count)));
  const traf = box("traf", box("tfhd", u32(0), u32(1)), box("tfdt", u32(0), u32(decode)), ...runs);
  return Uint8Array.from([...box("moof", traf), ...box("mdat", new Uint8Array(bytes))]);
}

test("a fragment has a limited number of samples, however few bytes say of them", () => {
  const max = SAMPLES_PER_FRAGMENT_MAX;
  assert.equal(readFragment(fragment([max], 2 * max), TRACKS).length, max);
  assert.equal(readFragment(fragment([max - 1, 1], 2 * max), TRACKS).length, max);
  for (const counts of [[max + 1], [max, 1], [0xffff_ffff]]) {
    assert.throws(() => readFragment(fragment(counts, 2 * max + 2), TRACKS), /more than 4096 samples/);
  }
  // Any number of samples without bytes fits into a fragment.
  const empty = TRACKS.map((track) => ({ ...track, defaults: { duration: 0, size: 0 } }));
  assert.throws(() => readFragment(fragment([0xffff_ffff], 0), empty), RangeError);
  const both = Uint8Array.from([...fragment([max], 2 * max), ...fragment([1], 2)]);
  assert.throws(() => readFragment(both, TRACKS), /more than 4096 samples/, "all fragments of an object together");
});

test("several fragments of one object are read, with what the init segment says of samples", () => {
  const samples = readFragment(Uint8Array.from([...box("styp", []), ...fragment([2], 4), ...fragment([1], 2, 80)]), TRACKS);
  assert.deepEqual(samples.map(({ decodeUs, durationUs, data }) => [decodeUs, durationUs, data.length]), [
    [0, 40_000, 2],
    [40_000, 40_000, 2],
    [80_000, 40_000, 2],
  ]);
  assert.throws(() => readFragment(fragment([3], 4), TRACKS), /lies outside of the mdat box/);
});

test("boxes and tracks are limited in number", () => {
  const many = (/** @type {number} */ count) => Uint8Array.from(Array.from({ length: count }, () => [...box("free")]).flat());
  assert.equal(parse(many(BOXES_MAX)).length, BOXES_MAX);
  assert.throws(() => parse(many(BOXES_MAX + 1)), /more than 16384 boxes/);
  const moov = (/** @type {number} */ count) => box("moov", ...Array.from({ length: count }, () => box("trak")));
  assert.deepEqual(readInit(moov(TRACKS_MAX)), []);
  assert.throws(() => readInit(moov(TRACKS_MAX + 1)), /17 tracks; at most 16 are accepted/);
});

test("of a catalog a few layers are played, and a catalog of any length is not read", () => {
  const catalog = (/** @type {number} */ layers, /** @type {object} */ more = {}) => {
    const track = (/** @type {number} */ place) => ({ name: `v${place}`, packaging: "loc", role: "video", codec: "avc1.42e01e", ...(place > 0 ? { depends: ["v0"] } : {}) });
    return new TextEncoder().encode(JSON.stringify({ tracks: Array.from({ length: layers }, (_, place) => track(place)), ...more }));
  };
  assert.equal(readCatalog(catalog(LAYERS_MAX)).video.length, LAYERS_MAX);
  assert.equal(readCatalog(catalog(LAYERS_MAX + 1)).video.length, LAYERS_MAX);
  const room = HELD_BYTES_MAX - catalog(1, { more: "" }).length;
  assert.equal(readCatalog(catalog(1, { more: " ".repeat(room) })).video.length, 1);
  assert.throws(() => readCatalog(catalog(1, { more: " ".repeat(room + 1) })), /at most 1048576 are accepted/);
  for (const initDataList of [{ find: 3 }, [null, { type: "inline", data: "AAAA" }]]) {
    assert.equal(readCatalog(catalog(1, { initDataList })).video[0].description, undefined);
  }
});

test("a stream is seen whose sound cannot be read", () => {
  const tracks = [
    { name: "video", packaging: "loc", role: "video", codec: "avc1.42e01e" },
    { name: "audio", packaging: "cmaf", role: "audio", codec: "mp4a.40.2", initData: "AAAA" },
  ];
  const plan = readCatalog(new TextEncoder().encode(JSON.stringify({ tracks })));
  assert.deepEqual([plan.video.length, plan.audio], [1, undefined]);
});

test("of LOC the order of arrival tells when frames are decoded", () => {
  const file = JSON.parse(readFileSync(new URL("../../vectors/live/loc-times.json", import.meta.url), "utf8"));
  for (const { name, frames } of file.vectors) {
    const clock = new LocClock();
    for (const [group, presentationUs, decodeUs, durationUs] of frames) {
      assert.deepEqual(clock.next(group, presentationUs), { decodeUs, presentationUs, durationUs }, name);
    }
  }
});

/**
 * Returns a LOC object of another publisher.
 *
 * @param {number} group
 * @param {number} id
 * @param {...number} payload
 * @returns {any}
 */
function loc(group, id, ...payload) {
  return { group: BigInt(group), id: BigInt(id), properties: [{ type: 0x10n, int: BigInt(id * 40_000) }], payload: Uint8Array.from(payload) };
}

test("kinds are told whatever bytes the lengths of NAL units have", () => {
  for (const lengthBytes of [1, 2, 4]) {
    const description = Uint8Array.of(1, 0x64, 0, 0x1f, 0xfc | (lengthBytes - 1), 0xe0, 0);
    assert.equal(lengthBytesOf(description), lengthBytes);
    const plan = /** @type {any} */ ({ name: "video", media: "video", packaging: "loc", codec: "avc1.64001f", init: [] });
    const length = Array.from({ length: lengthBytes - 1 }, () => 0);
    const samples = [[0x65, 0x88], [0x41, 0xc0], [0x01, 0xa0]].map((unit) => [...length, 2, 6, 5, ...length, unit.length, ...unit]);
    const kinds = (/** @type {Unpacker} */ unpacker, /** @type {any[]} */ objects) => objects.flatMap((object) => unpacker.read(object, 0)).map(({ tag }) => tag.kind).join("");
    const objects = samples.map((sample, id) => loc(1, id, ...sample));
    assert.equal(kinds(new Unpacker({ ...plan, description }), objects), "IPB");
    // The configuration of a keyframe applies from there on.
    objects[0].properties.unshift({ type: 0x0dn, bytes: description });
    assert.equal(kinds(new Unpacker(plan), objects), "IPB");
  }
  assert.equal(lengthBytesOf(undefined), 4);
  assert.equal(lengthBytesOf(Uint8Array.of(1, 2, 3)), 4);
});

test("of a publisher that begins anew with lower groups the present group is not forgotten", () => {
  const unpacker = new Unpacker(/** @type {any} */ ({ name: "video", media: "video", packaging: "loc", codec: "vp8", init: [] }));
  for (let group = 100; group < 100 + GROUPS_MAX; group++) unpacker.read(loc(group, 0, 1), 0);
  const references = [0, 1, 2].flatMap((id) => unpacker.read(loc(0, id, 1), 0)).map(({ tag }) => tag.references);
  assert.deepEqual(references, [0, 1, 2]);
  assert.deepEqual([unpacker.references.size, unpacker.clock.groups.size], [GROUPS_MAX, GROUPS_MAX]);
});
