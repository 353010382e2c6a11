/**
 * A track that this client publishes: subgroup streams with objects in order.
 */

import { Writer, concat } from "./cursor.js";
import { writeObject, writeSubgroupHeader } from "./object.js";
import { ignore } from "./streams.js";

/** @typedef {import("./property.js").Property} Property */

/** A track that the peer has accepted, or may subscribe to. */
export class Publication {
  /**
   * @param {WebTransport} transport
   * @param {bigint} trackAlias
   * @param {(streams: number) => Promise<void>} finish ends the track after this many streams
   */
  constructor(transport, trackAlias, finish) {
    this.transport = transport;
    this.trackAlias = trackAlias;
    this.finish = finish;
    this.streams = 0;
    /** The largest location that was written.
     * @type {import("./parameter.js").Location | undefined} */
    this.largest = undefined;
    this.isOver = false;
    /** Whether the peer wants objects (FORWARD, moqt-18 §5.1). */
    this.isForwarding = true;
    /** Called when `isForwarding` changes. */
    this.onForward = () => {};
  }

  /**
   * Applies the peer's update. What the update omits keeps its value.
   *
   * @param {import("./parameter.js").Parameters} parameters
   */
  update({ forward }) {
    if (forward === undefined || forward === this.isForwarding) return;
    this.isForwarding = forward;
    this.onForward();
  }

  /**
   * Opens a subgroup, which has properties and begins with its first object.
   *
   * @param {bigint} group
   * @param {bigint} subgroup
   * @param {number} priority 0 to 255; a lower number is sent first
   * @returns {Subgroup}
   */
  open(group, subgroup, priority) {
    this.streams += 1;
    const header = new Writer();
    writeSubgroupHeader(header, {
      trackAlias: this.trackAlias,
      group,
      subgroup: { explicit: subgroup },
      priority: BigInt(priority),
      hasProperties: true,
      endOfGroup: false,
      firstObject: true,
    });
    // In browsers with send orders, larger ones are sent first.
    const stream = this.transport.createUnidirectionalStream({ sendOrder: -priority });
    return new Subgroup(stream, header.finish(), (object) => this.#noteWritten(group, object));
  }

  /**
   * @param {bigint} group
   * @param {bigint} object
   */
  #noteWritten(group, object) {
    const { largest } = this;
    if (!largest || group > largest.group || (group === largest.group && object > largest.object)) this.largest = { group, object };
  }

  /** Ends the track. */
  async done() {
    if (this.isOver) return;
    this.isOver = true;
    await this.finish(this.streams);
  }

  /** Notes that the peer has ended the subscription. */
  end() {
    this.isOver = true;
  }
}

/** The stream of one subgroup. */
export class Subgroup {
  /**
   * @param {Promise<WritableStream<Uint8Array>>} stream
   * @param {Uint8Array} header
   * @param {(object: bigint) => void} onWrite called with the ID of each object
   */
  constructor(stream, header, onWrite) {
    this.start = header;
    this.onWrite = onWrite;
    /** @type {bigint | undefined} */
    this.previous = undefined;
    /** Bytes that the stream has not accepted. */
    this.waitingBytes = 0;
    this.hasFailed = false;
    /** @type {Promise<WritableStreamDefaultWriter<Uint8Array>>} */
    this.writer = stream.then((opened) => opened.getWriter());
    this.writer.catch(() => {
      this.hasFailed = true;
    });
  }

  /**
   * Writes an object.
   *
   * @param {bigint} id greater than the previous one
   * @param {Property[]} properties in ascending order of type
   * @param {Uint8Array} payload
   */
  write(id, properties, payload) {
    if (this.hasFailed) return;
    const fields = new Writer();
    writeObject(fields, { id, status: "normal", payloadLength: BigInt(payload.length), properties }, this.previous, true);
    this.previous = id;
    this.onWrite(id);
    const bytes = concat(concat(this.start, fields.finish()), payload);
    this.start = new Uint8Array(0);
    this.waitingBytes += bytes.length;
    this.writer
      .then((writer) => writer.write(bytes))
      .then(() => {
        this.waitingBytes -= bytes.length;
      })
      .catch(() => {
        this.hasFailed = true;
      });
  }

  /** Ends the stream. */
  close() {
    this.writer.then((writer) => writer.close()).catch(ignore);
  }

  /**
   * Resets the stream, since the rest is not worth sending.
   *
   * @param {WebTransportError} reason
   */
  reset(reason) {
    this.hasFailed = true;
    this.writer.then((writer) => writer.abort(reason)).catch(ignore);
  }
}
