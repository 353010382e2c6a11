/**
 * A track that this client publishes: subgroup streams, each with objects in order.
 */

import { Writer } from "./cursor.js";
import { concat } from "./message.js";
import { writeObject, writeSubgroupHeader } from "./object.js";
import { ignore } from "./streams.js";

/** @typedef {import("./property.js").Property} Property */

/** A track that the peer accepted. */
export class Publication {
  /**
   * @param {WebTransport} transport
   * @param {bigint} trackAlias
   * @param {(streams: number) => Promise<void>} finish says that nothing more comes, after so many streams
   */
  constructor(transport, trackAlias, finish) {
    this.transport = transport;
    this.trackAlias = trackAlias;
    this.finish = finish;
    this.streams = 0;
    this.isOver = false;
    /** Whether the peer wants objects now (draft-18, FORWARD). */
    this.isForwarding = true;
    /** That has changed. */
    this.onForward = () => {};
  }

  /**
   * The peer says what it wants; what it does not mention stays.
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
   * @param {number} priority 0 to 255, lower is sent first
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
    // Where the browser knows send orders, larger ones go first.
    const stream = this.transport.createUnidirectionalStream({ sendOrder: -priority });
    return new Subgroup(stream, header.finish());
  }

  /** Nothing more comes. */
  async done() {
    if (this.isOver) return;
    this.isOver = true;
    await this.finish(this.streams);
  }

  /** The peer wants no more. */
  end() {
    this.isOver = true;
  }
}

/** One subgroup's stream. */
export class Subgroup {
  /**
   * @param {Promise<WritableStream<Uint8Array>>} stream
   * @param {Uint8Array} header
   */
  constructor(stream, header) {
    this.start = header;
    /** @type {bigint | undefined} */
    this.previous = undefined;
    /** Bytes that were not taken yet. */
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
   * @param {bigint} id greater than that of the one before
   * @param {Property[]} properties in ascending order of type
   * @param {Uint8Array} payload
   */
  write(id, properties, payload) {
    if (this.hasFailed) return;
    const fields = new Writer();
    writeObject(fields, { id, status: "normal", payloadLength: BigInt(payload.length), properties }, this.previous, true);
    this.previous = id;
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

  /** Nothing more comes on this stream. */
  close() {
    this.writer.then((writer) => writer.close()).catch(ignore);
  }

  /**
   * What is left of this stream is not worth sending.
   *
   * @param {WebTransportError} reason
   */
  reset(reason) {
    this.hasFailed = true;
    this.writer.then((writer) => writer.abort(reason)).catch(ignore);
  }
}
