/**
 * The parts of fragmented MP4 that a player needs (ISO/IEC 14496-12 §8): the init segment, and fragments.
 */

import { find, parse } from "./boxes.js";

/** The most samples of one fragment. */
export const SAMPLES_PER_FRAGMENT_MAX = 4096;
/** The most tracks of one init segment. */
export const TRACKS_MAX = 16;

/**
 * @typedef {object} Defaults values of samples whose fragment gives none
 * @property {number} duration in units of the track
 * @property {number} size bytes
 *
 * @typedef {object} Mp4Track
 * @property {number} id
 * @property {"video" | "audio"} media
 * @property {string} codec in the notation of RFC 6381
 * @property {number} timescale units per second
 * @property {Defaults} defaults
 * @property {Uint8Array} [description] data for the decoder
 * @property {number} [width]
 * @property {number} [height]
 * @property {number} [sampleRate]
 * @property {number} [channels]
 *
 * @typedef {object} Sample times are microseconds of media time
 * @property {number} trackId
 * @property {number} decodeUs
 * @property {number} presentationUs
 * @property {number} durationUs
 * @property {Uint8Array} data
 */

/**
 * Reads the tracks of an init segment that this player supports.
 *
 * @param {Uint8Array} segment `ftyp` and `moov`
 * @returns {Mp4Track[]} throws a RangeError if it is invalid, or has more than {@link TRACKS_MAX}
 */
export function readInit(segment) {
  const moov = find(parse(segment), "moov");
  if (!moov) throw new RangeError("the init segment has no moov box");
  const boxes = parse(moov.body);
  const traks = boxes.filter((box) => box.type === "trak");
  if (traks.length > TRACKS_MAX) throw new RangeError(`the init segment has ${traks.length} tracks; at most ${TRACKS_MAX} are accepted`);
  const mvex = find(boxes, "mvex");
  const defaults = readDefaults(mvex ? parse(mvex.body) : []);
  return traks.flatMap((trak) => readTrack(trak.body, defaults));
}

/**
 * Reads the `trex` boxes with the defaults of each track's samples.
 *
 * @param {import("./boxes.js").Box[]} boxes
 * @returns {Map<number, Defaults>} by track number
 */
function readDefaults(boxes) {
  return new Map(
    boxes
      .filter((box) => box.type === "trex")
      .map(({ body }) => [view(body).getUint32(4), { duration: view(body).getUint32(12), size: view(body).getUint32(16) }]),
  );
}

/**
 * @param {Uint8Array} trak
 * @param {Map<number, Defaults>} defaults
 * @returns {Mp4Track[]} empty if it is not supported
 */
function readTrack(trak, defaults) {
  const boxes = parse(trak);
  const tkhd = find(boxes, "tkhd")?.body;
  const mdia = find(boxes, "mdia")?.body;
  if (!tkhd || !mdia) return [];
  const inner = parse(mdia);
  const mdhd = find(inner, "mdhd")?.body;
  const minf = find(inner, "minf")?.body;
  const stbl = minf && find(parse(minf), "stbl")?.body;
  const stsd = stbl && find(parse(stbl), "stsd")?.body;
  if (!mdhd || !stsd) return [];
  const id = view(tkhd).getUint32(tkhd[0] === 1 ? 20 : 12);
  const timescale = view(mdhd).getUint32(mdhd[0] === 1 ? 20 : 12);
  const entry = parse(stsd.subarray(8))[0];
  if (!entry || timescale === 0) return [];
  const common = { id, timescale, defaults: defaults.get(id) ?? { duration: 0, size: 0 } };
  switch (entry.type) {
    case "avc1":
    case "avc3": {
      const avcC = find(parse(entry.body.subarray(78)), "avcC")?.body;
      if (!avcC) return [];
      const codec = `avc1.${[...avcC.subarray(1, 4)].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
      const size = view(entry.body);
      return [{ ...common, media: "video", codec, description: avcC.slice(), width: size.getUint16(24), height: size.getUint16(26) }];
    }
    case "mp4a": {
      const esds = find(parse(entry.body.subarray(28)), "esds")?.body;
      const configuration = esds && decoderSpecific(esds.subarray(4));
      if (!configuration) return [];
      return [{ ...common, ...sound(entry.body), media: "audio", codec: `mp4a.40.${configuration[0] >> 3}`, description: configuration.slice() }];
    }
    case "Opus":
      return [{ ...common, ...sound(entry.body), media: "audio", codec: "opus", sampleRate: 48000 }];
    default:
      return [];
  }
}

/** @param {Uint8Array} entry */
function sound(entry) {
  const fields = view(entry);
  return { channels: fields.getUint16(16), sampleRate: fields.getUint32(24) >>> 16 };
}

/**
 * Finds the DecoderSpecificInfo inside descriptors (ISO/IEC 14496-1 §7.2.6), which are nested two deep.
 *
 * @param {Uint8Array} bytes
 * @param {number} [depth]
 * @returns {Uint8Array | undefined}
 */
function decoderSpecific(bytes, depth = 0) {
  if (depth > 2) return undefined;
  for (let at = 0; at < bytes.length; ) {
    const tag = bytes[at++];
    let length = 0;
    for (let i = 0; i < 4; i++) {
      const byte = bytes[at++];
      length = length * 128 + (byte & 0x7f);
      if ((byte & 0x80) === 0) break;
    }
    const body = bytes.subarray(at, at + length);
    if (tag === 0x03) return decoderSpecific(body.subarray(3), depth + 1);
    if (tag === 0x04) return decoderSpecific(body.subarray(13), depth + 1);
    if (tag === 0x05) return body;
    at += length;
  }
  return undefined;
}

/**
 * Reads the samples of fragments: a `moof` box and the `mdat` box after it. Other boxes may be between them.
 *
 * @param {Uint8Array} bytes
 * @param {Mp4Track[]} tracks of the init segment
 * @returns {Sample[]} throws a RangeError if one is invalid, or they have more than {@link SAMPLES_PER_FRAGMENT_MAX}
 *   samples
 */
export function readFragment(bytes, tracks) {
  /** @type {Sample[]} */
  const samples = [];
  /** @type {import("./boxes.js").Box | undefined} */
  let moof;
  let isEmpty = true;
  let left = SAMPLES_PER_FRAGMENT_MAX;
  for (const box of parse(bytes)) {
    if (box.type === "moof") moof = box;
    if (box.type !== "mdat" || !moof) continue;
    left -= readSamples(bytes, moof, box, tracks, left, samples);
    moof = undefined;
    isEmpty = false;
  }
  if (isEmpty) throw new RangeError("a fragment has no moof or no mdat box");
  return samples;
}

/**
 * @param {Uint8Array} bytes that contain the boxes
 * @param {import("./boxes.js").Box} moof
 * @param {import("./boxes.js").Box} mdat
 * @param {Mp4Track[]} tracks
 * @param {number} countMax the most samples
 * @param {Sample[]} samples to which those of known tracks are appended
 * @returns {number} the number of samples
 */
function readSamples(bytes, moof, mdat, tracks, countMax, samples) {
  let count = 0;
  // Samples without an offset follow those before them.
  let next = mdat.at;
  const end = mdat.at + mdat.body.length;
  for (const traf of parse(moof.body).filter((box) => box.type === "traf")) {
    const inner = parse(traf.body);
    const tfhd = find(inner, "tfhd")?.body;
    const tfdt = find(inner, "tfdt")?.body;
    if (!tfhd) continue;
    const { trackId, ...own } = readTfhd(tfhd);
    const track = tracks.find((known) => known.id === trackId);
    const defaults = { duration: own.duration ?? track?.defaults.duration ?? 0, size: own.size ?? track?.defaults.size ?? 0 };
    let decode = tfdt ? (tfdt[0] === 1 ? Number(view(tfdt).getBigUint64(4)) : view(tfdt).getUint32(4)) : 0;
    for (const trun of inner.filter((box) => box.type === "trun")) {
      const run = readTrun(trun.body, defaults, countMax - count);
      count += run.samples.length;
      if (run.offset !== undefined) next = moof.start + run.offset;
      for (const { size, duration, composition } of run.samples) {
        if (next < mdat.start || next + size > end) throw new RangeError("a sample lies outside of the mdat box of its fragment");
        if (track) {
          const us = (/** @type {number} */ units) => Math.floor((units * 1e6) / track.timescale);
          samples.push({
            trackId,
            decodeUs: us(decode),
            presentationUs: us(decode + composition),
            durationUs: us(decode + duration) - us(decode),
            data: bytes.subarray(next, next + size),
          });
        }
        next += size;
        decode += duration;
      }
    }
  }
  return count;
}

/** @param {Uint8Array} body */
function readTfhd(body) {
  const fields = view(body);
  const flags = fields.getUint32(0) & 0xffffff;
  let at = 8;
  const take = (/** @type {number} */ flag, /** @type {number} */ bytes) => {
    if ((flags & flag) === 0) return undefined;
    at += bytes;
    return fields.getUint32(at - bytes);
  };
  take(0x01, 8);
  take(0x02, 4);
  return { trackId: fields.getUint32(4), duration: take(0x08, 4), size: take(0x10, 4) };
}

/**
 * @param {Uint8Array} body
 * @param {Defaults} defaults
 * @param {number} countMax
 */
function readTrun(body, defaults, countMax) {
  const fields = view(body);
  const flags = fields.getUint32(0) & 0xffffff;
  const count = fields.getUint32(4);
  // If all samples have the default fields, a few bytes can declare any number of them.
  if (count > countMax) throw new RangeError(`a fragment has more than ${SAMPLES_PER_FRAGMENT_MAX} samples`);
  let at = 8;
  const next = () => {
    at += 4;
    return fields.getUint32(at - 4);
  };
  const offset = (flags & 0x01) !== 0 ? next() | 0 : undefined;
  if ((flags & 0x04) !== 0) next();
  const samples = [];
  for (let i = 0; i < count; i++) {
    const duration = (flags & 0x100) !== 0 ? next() : defaults.duration;
    const size = (flags & 0x200) !== 0 ? next() : defaults.size;
    if ((flags & 0x400) !== 0) next();
    const composition = (flags & 0x800) !== 0 ? next() | 0 : 0;
    samples.push({ duration, size, composition });
  }
  return { offset, samples };
}

/** @param {Uint8Array} bytes */
function view(bytes) {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
