/**
 * A track that this client receives.
 */

/**
 * @typedef {import("./streams.js").ObjectHead} ObjectHead
 * @typedef {import("./streams.js").WholeObject} WholeObject
 * @typedef {import("./streams.js").RequestStream} RequestStream
 *
 * @typedef {object} Sink what takes the objects of a track
 * @property {(head: ObjectHead) => boolean} [onHead] the first byte came; false if the stream is not wanted any more
 * @property {(object: WholeObject) => void} onObject all of an object came
 * @property {(group: bigint) => void} [onStreamEnd] a stream of the group ended, whole or not
 * @property {(code: number, reason: string) => void} [onDone] nothing more comes
 */

/** A subscription that the peer granted. */
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

  /** Wants no more of the track. */
  cancel() {
    this.isOver = true;
    this.stream?.cancel();
  }
}
