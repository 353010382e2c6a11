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
    /** Whether SUBSCRIBE has requested the past. */
    this.isFilled = false;
    /** The updates without an answer, in the order sent.
     * @type {((error: Error | undefined) => void)[]} */
    this.updates = [];
  }

  /** @returns {Promise<void>} the answer to the update that is sent next */
  awaitUpdate() {
    return new Promise((resolve, reject) => {
      this.updates.push((error) => (error ? reject(error) : resolve()));
    });
  }

  /**
   * Handles the answer to the oldest update.
   *
   * @param {Error | undefined} error why it was refused
   */
  onUpdated(error) {
    this.updates.shift()?.(error);
  }

  /** Handles the end of the request's stream, after which no update is answered. */
  onStreamEnd() {
    for (const answer of this.updates.splice(0)) answer(new Error("the subscription has ended"));
  }

  /** Ends the subscription. */
  cancel() {
    this.isOver = true;
    this.stream?.cancel();
  }
}
