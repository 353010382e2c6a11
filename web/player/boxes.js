/**
 * MP4 boxes (ISO/IEC 14496-12 §4.2).
 */

/** The most boxes on one level. */
export const BOXES_MAX = 16_384;

/**
 * @typedef {object} Box
 * @property {string} type
 * @property {number} start the offset of the box in the bytes
 * @property {number} at the offset of its contents
 * @property {Uint8Array} body its contents
 */

/**
 * Splits bytes into consecutive boxes.
 *
 * @param {Uint8Array} bytes
 * @returns {Box[]} throws a RangeError if a box does not fit, or there are more than {@link BOXES_MAX}
 */
export function parse(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  /** @type {Box[]} */
  const boxes = [];
  for (let start = 0; start + 8 <= bytes.length; ) {
    let size = view.getUint32(start);
    const type = String.fromCharCode(...bytes.subarray(start + 4, start + 8));
    let at = start + 8;
    if (size === 1) {
      size = Number(view.getBigUint64(at));
      at += 8;
    } else if (size === 0) {
      size = bytes.length - start;
    }
    if (size < at - start || start + size > bytes.length) throw new RangeError(`the box ${type} is longer than its container`);
    if (boxes.length === BOXES_MAX) throw new RangeError(`more than ${BOXES_MAX} boxes in one container`);
    boxes.push({ type, start, at, body: bytes.subarray(at, start + size) });
    start += size;
  }
  return boxes;
}

/**
 * @param {Box[]} boxes
 * @param {string} type
 * @returns {Box | undefined}
 */
export function find(boxes, type) {
  return boxes.find((box) => box.type === type);
}
