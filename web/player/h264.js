/**
 * The parts of H.264 that a player needs: kinds of frames, and how many pictures a decoder holds back (ITU-T H.264
 * §7.3, Annex E; ISO/IEC 14496-15 §5.3.3).
 */

/**
 * Returns the bytes of the length before each NAL unit.
 *
 * @param {Uint8Array | undefined} avcC an AVCDecoderConfigurationRecord
 * @returns {number} 4 without one
 */
export function lengthBytesOf(avcC) {
  return avcC && avcC.length > 4 ? (avcC[4] & 0b11) + 1 : 4;
}

/**
 * Returns how a frame is coded, from its NAL units after their lengths.
 *
 * @param {Uint8Array} sample
 * @param {number} [lengthBytes] bytes of each length
 * @returns {{ kind: import("../playout/reorder.js").Kind, isDisposable: boolean } | undefined} undefined if it is not a
 *   frame
 */
export function frameKind(sample, lengthBytes = 4) {
  for (const unit of units(sample, lengthBytes)) {
    const type = unit[0] & 0x1f;
    if (type !== 1 && type !== 5) continue;
    if (type === 5) return { kind: "I", isDisposable: false };
    const bits = new BitReader(withoutEmulation(unit.subarray(1, 32)));
    bits.ue();
    const slice = bits.ue() % 5;
    return { kind: slice === 1 ? "B" : "P", isDisposable: (unit[0] & 0x60) === 0 };
  }
  return undefined;
}

/**
 * Returns a configuration that tells the decoder how many pictures to hold back for reordering.
 *
 * @param {Uint8Array} avcC an AVCDecoderConfigurationRecord
 * @param {number} frames 0 for a stream in presentation order
 * @returns {Uint8Array} the same configuration if it cannot be parsed
 */
export function withReorderFrames(avcC, frames) {
  try {
    const count = avcC[5] & 0x1f;
    const out = [...avcC.subarray(0, 6)];
    let at = 6;
    for (let i = 0; i < count; i++) {
      const length = (avcC[at] << 8) | avcC[at + 1];
      const sps = patchSps(avcC.subarray(at + 2, at + 2 + length), frames);
      out.push(sps.length >> 8, sps.length & 0xff, ...sps);
      at += 2 + length;
    }
    out.push(...avcC.subarray(at));
    return Uint8Array.from(out);
  } catch (error) {
    if (error instanceof RangeError) return avcC;
    throw error;
  }
}

/**
 * Returns a sequence parameter set that says how many pictures may be held back.
 *
 * @param {Uint8Array} sps with its NAL unit header
 * @param {number} frames
 * @returns {Uint8Array}
 */
export function patchSps(sps, frames) {
  const reader = new BitReader(withoutEmulation(sps));
  const writer = new BitWriter();
  const copy = (/** @type {number} */ count) => writer.bits(reader.bits(count), count);
  const ue = () => {
    const value = reader.ue();
    writer.ue(value);
    return value;
  };
  copy(8);
  const profile = copy(8);
  copy(16);
  ue();
  if (HIGH_PROFILES.includes(profile)) copyHighProfile(copy, ue);
  ue(); // log2_max_frame_num_minus4
  const order = ue();
  if (order === 0) {
    ue();
  } else if (order === 1) {
    copy(1);
    ue();
    ue();
    for (let count = ue(); count > 0; count--) ue();
  }
  const references = ue();
  copy(1);
  ue();
  ue();
  if (copy(1) === 0) copy(1);
  copy(1);
  if (copy(1) === 1) for (let i = 0; i < 4; i++) ue();
  if (reader.bits(1) === 1) {
    writer.bits(1, 1);
    copyVui(reader, writer, copy, ue, frames, references);
  } else {
    // A VUI with only the bitstream restriction.
    writer.bits(1, 1);
    writer.bits(0, 8);
    writeRestriction(writer, [1, 0, 0, 16, 16], frames, references);
  }
  writer.bits(1, 1);
  return withEmulation(writer.finish());
}

/**
 * @param {(count: number) => number} copy
 * @param {() => number} ue
 */
function copyHighProfile(copy, ue) {
  const chroma = ue();
  if (chroma === 3) copy(1);
  ue();
  ue();
  copy(1);
  if (copy(1) === 0) return;
  for (let list = 0; list < (chroma === 3 ? 12 : 8); list++) {
    if (copy(1) === 0) continue;
    let next = 8;
    for (let i = 0; i < (list < 6 ? 16 : 64) && next !== 0; i++) {
      const code = ue();
      const delta = code % 2 === 1 ? (code + 1) / 2 : -code / 2;
      next = (next + delta + 256) % 256;
    }
  }
}

/**
 * @param {BitReader} reader
 * @param {BitWriter} writer
 * @param {(count: number) => number} copy
 * @param {() => number} ue
 * @param {number} frames
 * @param {number} references
 */
function copyVui(reader, writer, copy, ue, frames, references) {
  if (copy(1) === 1 && copy(8) === 255) copy(32);
  if (copy(1) === 1) copy(1);
  if (copy(1) === 1) {
    copy(4);
    if (copy(1) === 1) copy(24);
  }
  if (copy(1) === 1) {
    ue();
    ue();
  }
  if (copy(1) === 1) {
    copy(32);
    copy(32);
    copy(1);
  }
  const hrd = () => {
    const count = ue();
    copy(8);
    for (let i = 0; i <= count; i++) {
      ue();
      ue();
      copy(1);
    }
    copy(20);
  };
  const hasNal = copy(1) === 1;
  if (hasNal) hrd();
  const hasVcl = copy(1) === 1;
  if (hasVcl) hrd();
  if (hasNal || hasVcl) copy(1);
  copy(1);
  const fields = [1, 0, 0, 16, 16];
  let buffering = references;
  if (reader.bits(1) === 1) {
    fields[0] = reader.bits(1);
    for (let i = 1; i < 5; i++) fields[i] = reader.ue();
    reader.ue();
    buffering = reader.ue();
  }
  writeRestriction(writer, fields, frames, buffering);
}

/**
 * @param {BitWriter} writer
 * @param {number[]} fields those before the number of frames
 * @param {number} frames
 * @param {number} buffering
 */
function writeRestriction(writer, fields, frames, buffering) {
  writer.bits(1, 1);
  writer.bits(fields[0], 1);
  for (const field of fields.slice(1)) writer.ue(field);
  writer.ue(frames);
  writer.ue(Math.max(buffering, frames, 1));
}

/**
 * Iterates over NAL units after their lengths.
 *
 * @param {Uint8Array} sample
 * @param {number} lengthBytes 1 to 4
 */
function* units(sample, lengthBytes) {
  for (let at = 0; at + lengthBytes < sample.length; ) {
    const start = at + lengthBytes;
    let length = 0;
    for (; at < start; at++) length = length * 256 + sample[at];
    if (length === 0 || start + length > sample.length) return;
    yield sample.subarray(start, start + length);
    at = start + length;
  }
}

/** @param {Uint8Array} bytes */
function withoutEmulation(bytes) {
  const out = [];
  for (let i = 0; i < bytes.length; i++) {
    if (i >= 2 && bytes[i] === 3 && bytes[i - 1] === 0 && bytes[i - 2] === 0) continue;
    out.push(bytes[i]);
  }
  return Uint8Array.from(out);
}

/** @param {Uint8Array} bytes */
function withEmulation(bytes) {
  /** @type {number[]} */
  const out = [];
  let zeros = 0;
  for (const byte of bytes) {
    if (zeros >= 2 && byte <= 3) {
      out.push(3);
      zeros = 0;
    }
    out.push(byte);
    zeros = byte === 0 ? zeros + 1 : 0;
  }
  return Uint8Array.from(out);
}

/** Reads bits. Throws a RangeError at the end. */
class BitReader {
  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  /**
   * @param {number} count at most 32
   * @returns {number}
   */
  bits(count) {
    let value = 0;
    for (let i = 0; i < count; i++) {
      const byte = this.bytes[this.at >> 3];
      if (byte === undefined) throw new RangeError("the H.264 header ends too early");
      value = value * 2 + ((byte >> (7 - (this.at & 7))) & 1);
      this.at += 1;
    }
    return value;
  }

  /** @returns {number} an Exp-Golomb code */
  ue() {
    let zeros = 0;
    while (this.bits(1) === 0) {
      zeros += 1;
      if (zeros > 31) throw new RangeError("an Exp-Golomb code is too long");
    }
    return 2 ** zeros - 1 + this.bits(zeros);
  }
}

/** Writes bits. */
class BitWriter {
  constructor() {
    /** @type {number[]} */
    this.out = [];
    this.at = 0;
  }

  /**
   * @param {number} value
   * @param {number} count at most 32
   * @returns {number} the value
   */
  bits(value, count) {
    for (let i = count - 1; i >= 0; i--) {
      if ((this.at & 7) === 0) this.out.push(0);
      const bit = Math.floor(value / 2 ** i) % 2;
      this.out[this.at >> 3] |= bit << (7 - (this.at & 7));
      this.at += 1;
    }
    return value;
  }

  /** @param {number} value */
  ue(value) {
    const length = Math.floor(Math.log2(value + 1));
    this.bits(0, length);
    this.bits(value + 1, length + 1);
  }

  /** @returns {Uint8Array} */
  finish() {
    return Uint8Array.from(this.out);
  }
}

const HIGH_PROFILES = [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135];
