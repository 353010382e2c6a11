/**
 * Variable-length integers of 64 bits: as many leading one-bits as bytes follow the first [moqt-18 §1.4.1].
 *
 * Values are `bigint`, because they can need 64 bits; lengths are numbers.
 */

/** The largest value. */
export const VARINT_MAX = (1n << 64n) - 1n;

/**
 * Returns the length in bytes of an integer with this first byte.
 *
 * @param {number} first
 * @returns {number} 1 to 9
 */
export function lengthOf(first) {
  return Math.clz32(~(first << 24)) + 1;
}

/**
 * Reads an integer.
 *
 * @param {Uint8Array} bytes
 * @param {number} [at] the offset
 * @returns {[value: bigint, length: number] | undefined} undefined if the bytes end within the integer
 */
export function decode(bytes, at = 0) {
  if (at >= bytes.length) return undefined;
  const first = bytes[at];
  const length = lengthOf(first);
  if (at + length > bytes.length) return undefined;
  if (length <= 4) {
    // At most 28 bits, so a small integer suffices.
    let value = first & (0xff >> length);
    for (let i = 1; i < length; i++) value = (value << 8) | bytes[at + i];
    return [BigInt(value), length];
  }
  let value = BigInt(first & (0xff >> length));
  for (let i = 1; i < length; i++) value = (value << 8n) | BigInt(bytes[at + i]);
  return [value, length];
}

/**
 * Appends an integer in its shortest form.
 *
 * @param {bigint | number} value 0 to 2^64 - 1
 * @param {number[]} out
 */
export function encode(value, out) {
  let rest = BigInt(value);
  if (rest < 0n || rest > VARINT_MAX) throw new RangeError(`${value} is not a 64-bit integer`);
  let length = 1;
  while (length < 9 && rest >> BigInt(7 * length) !== 0n) length += 1;
  const start = out.length;
  for (let i = length - 1; i >= 0; i--) {
    out[start + i] = Number(rest & 0xffn);
    rest >>= 8n;
  }
  out[start] |= (0xff00 >> (length - 1)) & 0xff;
}
