/**
 * Streams of a session: request streams, and objects that arrive in pieces.
 */

import { ResetCode } from "./error.js";
import { MessageReader, encodeMessage } from "./message.js";

/**
 * @typedef {object} ObjectHead an object whose payload has not arrived
 * @property {bigint} group
 * @property {bigint} [subgroup] absent in datagrams
 * @property {bigint} id
 * @property {import("./property.js").Property[]} properties
 *
 * @typedef {ObjectHead & { payload: Uint8Array }} WholeObject
 */

/** The stream of a request. */
export class RequestStream {
  /**
   * @param {WebTransportBidirectionalStream} stream
   * @param {import("./draft.js").Draft} draft
   */
  constructor(stream, draft) {
    this.draft = draft;
    /** @type {ReadableStreamDefaultReader<Uint8Array>} */
    this.reader = stream.readable.getReader();
    /** @type {WritableStreamDefaultWriter<Uint8Array>} */
    this.writer = stream.writable.getWriter();
    this.messages = new MessageReader(draft);
  }

  /** @param {import("./message.js").Message} message */
  async send(message) {
    await this.writer.write(encodeMessage(message, this.draft));
  }

  /** @returns {Promise<import("./message.js").Message | undefined>} undefined at the end of the stream */
  async next() {
    for (;;) {
      const message = this.messages.poll();
      if (message) return message;
      const { value, done } = await this.reader.read();
      if (done) {
        this.messages.fin();
        return undefined;
      }
      this.messages.push(value);
    }
  }

  cancel() {
    this.writer.abort(streamError(ResetCode.CANCELLED)).catch(ignore);
    this.reader.cancel(streamError(ResetCode.CANCELLED)).catch(ignore);
  }
}

/** Bytes that an object gets before its payload arrives: most objects of live media fit. */
const FIRST_BYTES = 64 << 10;

/** Assembles an object from its pieces. */
export class Assembly {
  constructor() {
    /** @type {ObjectHead | undefined} */
    this.head = undefined;
    this.payload = new Uint8Array(0);
    this.length = 0;
    this.filled = 0;
  }

  /**
   * Begins an object. Memory grows with what arrives, at most twice as fast: an announced length alone costs little.
   *
   * @param {ObjectHead} head
   * @param {number} length
   */
  begin(head, length) {
    this.head = head;
    this.length = length;
    this.payload = new Uint8Array(Math.min(length, FIRST_BYTES));
    this.filled = 0;
  }

  /** @param {Uint8Array} piece */
  add(piece) {
    const end = this.filled + piece.length;
    if (end > this.payload.length) {
      const grown = new Uint8Array(Math.min(this.length, Math.max(end, 2 * this.payload.length)));
      grown.set(this.payload.subarray(0, this.filled));
      this.payload = grown;
    }
    this.payload.set(piece, this.filled);
    this.filled = end;
  }

  /** @returns {WholeObject | undefined} the object, if it is complete */
  take() {
    if (!this.head || this.filled < this.length) return undefined;
    const whole = { ...this.head, payload: this.payload };
    this.head = undefined;
    return whole;
  }
}

/**
 * Returns an error that carries a code to the peer.
 *
 * @param {number} code
 * @returns {WebTransportError}
 */
export function streamError(code) {
  try {
    return new WebTransportError("", { source: "stream", streamErrorCode: code });
  } catch {
    // Chromium 156 has the constructor of an older draft.
    const Older = /** @type {new (init: { streamErrorCode: number }) => WebTransportError} */ (/** @type {unknown} */ (WebTransportError));
    return new Older({ streamErrorCode: code });
  }
}

/** Handles rejections of promises that are reported elsewhere. */
export function ignore() {}
