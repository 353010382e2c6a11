/**
 * A track that this client receives.
 */

/**
 * @typedef {import("./streams.js").ObjectHead} ObjectHead
 * @typedef {import("./streams.js").WholeObject} WholeObject
 * @typedef {import("./streams.js").RequestStream} RequestStream
 *
 * @typedef {object} Sink receives the objects of a track
 * @property {(head: ObjectHead) => boolean} [onHead] called at the first byte; returns false if the stream is not
 *   wanted
 * @property {(object: WholeObject) => void} onObject called for a complete object
 * @property {(group: bigint) => void} [onStreamEnd] called at the end of a stream of the group, complete or not
 * @property {(code: number, reason: string) => void} [onDone] called at the end of the track
 */

/** A subscription that the peer has accepted. */
export class Subscription {
  /**
   * @param {bigint} requestId
   * @param {Sink} sink
   */
  constructor(requestId, sink) {
    this.requestId = requestId;
    this.sink = sink;
    /** @type {import("./message.js").SubscribeOk | undefined} */
    this.ok = undefined;
    /** @type {RequestStream | undefined} */
    this.stream = undefined;
    this.isOver = false;
  }

  /** Ends the subscription. */
  cancel() {
    this.isOver = true;
    this.stream?.cancel();
  }
}
