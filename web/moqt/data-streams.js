/**
 * The objects that a session receives: their streams and datagrams, and where each goes.
 */

import { concat } from "./cursor.js";
import { DoneCode, ResetCode, Violation } from "./error.js";
import { FetchReader, SubgroupReader, decodeDatagram, streamKind } from "./object.js";
import { Assembly, ignore, streamError } from "./streams.js";
import { lengthOf } from "./varint.js";

/** How long a stream waits for the message that defines its alias, in milliseconds. */
const UNKNOWN_ALIAS_TIMEOUT_MS = 1000;
/** Streams that may wait for it. Further ones are stopped. */
const UNKNOWN_STREAMS_MAX = 64;
/** The most bytes of one object. The stream of a larger one is stopped. */
export const OBJECT_BYTES_MAX = 16 << 20;
/** Data streams that are read at the same time. Further ones are stopped. */
export const STREAMS_MAX = 1024;

/**
 * @typedef {import("./streams.js").ObjectHead} ObjectHead
 * @typedef {import("./streams.js").WholeObject} WholeObject
 * @typedef {import("./subscription.js").Sink} Sink
 * @typedef {import("./subscription.js").Subscription} Subscription
 *
 * @typedef {object} Route where a stream's objects go
 * @property {Sink} sink
 * @property {(object: any) => ObjectHead} headOf returns the head of an item's object
 * @property {(head: ObjectHead) => boolean} isWanted whether the rest of the stream is wanted
 * @property {() => void} onEnd called at the end of the stream, complete or not
 *
 * @typedef {object} Counters
 * @property {number} objects
 * @property {number} bytes bytes of payload
 * @property {number} streams
 * @property {number} streamsReset reset by the peer
 * @property {number} streamsStopped stopped by this endpoint
 *
 * @typedef {object} Owner the session
 * @property {(reader: ReadableStreamDefaultReader<Uint8Array>, start: Uint8Array) => Promise<void>} readControl reads a
 *   control stream that begins with these bytes
 * @property {(error: unknown) => void} onError
 */

/** Reads the data streams and datagrams of a session. */
export class DataStreams {
  /**
   * @param {WebTransport} transport
   * @param {import("./draft.js").Draft} draft
   * @param {Owner} owner
   */
  constructor(transport, draft, owner) {
    this.transport = transport;
    this.draft = draft;
    this.owner = owner;
    /** @type {Map<bigint, Subscription>} */
    this.aliases = new Map();
    /** @type {Map<bigint, Set<() => void>>} */
    this.awaited = new Map();
    /** @type {Map<bigint, Sink>} */
    this.fetches = new Map();
    this.streamsOpen = 0;
    this.streamsUnknown = 0;
    /** @type {Counters} */
    this.counters = { objects: 0, bytes: 0, streams: 0, streamsReset: 0, streamsStopped: 0 };
  }

  /** Begins to read. */
  start() {
    this.#readStreams();
    this.#readDatagrams();
  }

  /**
   * Routes the objects with an alias to a subscription.
   *
   * @param {bigint} alias
   * @param {Subscription} subscription
   */
  route(alias, subscription) {
    if (this.aliases.get(alias)?.isOver === false) throw new Violation("a Track Alias is used twice", "DUPLICATE_TRACK_ALIAS");
    this.aliases.set(alias, subscription);
    for (const wake of this.awaited.get(alias) ?? []) wake();
  }

  /**
   * Routes no more objects to a subscription.
   *
   * @param {Subscription} subscription
   */
  remove(subscription) {
    const alias = subscription.ok?.trackAlias;
    if (alias !== undefined && this.aliases.get(alias) === subscription) this.aliases.delete(alias);
  }

  async #readStreams() {
    /** @type {ReadableStreamDefaultReader<ReadableStream<Uint8Array>>} */
    const streams = this.transport.incomingUnidirectionalStreams.getReader();
    try {
      for (;;) {
        const { value, done } = await streams.read();
        if (done) return;
        this.#readStream(value).catch((error) => this.owner.onError(error));
      }
    } catch {
      // The session has ended, which `closed` reports.
    }
  }

  /** @param {ReadableStream<Uint8Array>} stream */
  async #readStream(stream) {
    const reader = stream.getReader();
    if (this.streamsOpen >= STREAMS_MAX) return this.#stop(reader, ResetCode.EXCESSIVE_LOAD);
    this.streamsOpen += 1;
    try {
      /** @type {Uint8Array} */
      let start = new Uint8Array(0);
      while (start.length === 0 || start.length < lengthOf(start[0])) {
        const { value, done } = await reader.read();
        if (done) return;
        start = concat(start, value);
      }
      switch (streamKind(start)) {
        case "control":
          return await this.owner.readControl(reader, start);
        case "subgroup":
          return await this.#readObjects(reader, start, new SubgroupReader(), (header) => this.#routeOfSubgroup(header));
        case "fetch":
          return await this.#readObjects(reader, start, new FetchReader("ascending", this.draft), (header) => this.#routeOfFetch(header));
        default:
          return await this.#stop(reader, ResetCode.CANCELLED);
      }
    } finally {
      this.streamsOpen -= 1;
    }
  }

  /**
   * Returns where the objects of a subgroup's stream go.
   *
   * @param {import("./object.js").SubgroupHeader} header
   * @returns {Promise<Route | undefined>} undefined if they are not wanted
   */
  async #routeOfSubgroup({ trackAlias, group, subgroup }) {
    const subscription = await this.#subscriptionOf(trackAlias);
    if (!subscription || subscription.isOver) return undefined;
    const { sink } = subscription;
    /** @type {bigint | undefined} */
    let number = typeof subgroup === "object" ? subgroup.explicit : subgroup === "zero" ? 0n : undefined;
    return {
      sink,
      headOf: ({ id, properties }) => {
        number ??= id;
        return { group, subgroup: number, id, properties };
      },
      isWanted: (head) => !subscription.isOver && sink.onHead?.(head) !== false,
      onEnd: () => sink.onStreamEnd?.(group),
    };
  }

  /**
   * Returns where the objects of a fetch go.
   *
   * @param {{ requestId: bigint }} header
   * @returns {Route | undefined} undefined if there is no such request
   */
  #routeOfFetch({ requestId }) {
    const sink = this.fetches.get(requestId);
    this.fetches.delete(requestId);
    return sink && {
      sink,
      headOf: ({ group, subgroup, object, properties }) => ({ group, ...(subgroup === undefined ? {} : { subgroup }), id: object, properties }),
      isWanted: () => true,
      onEnd: () => sink.onDone?.(DoneCode.SUBSCRIPTION_ENDED, ""),
    };
  }

  /**
   * Reads a stream of objects.
   *
   * @param {ReadableStreamDefaultReader<Uint8Array>} reader
   * @param {Uint8Array} start
   * @param {SubgroupReader | FetchReader} items
   * @param {(header: any) => Promise<Route | undefined> | Route | undefined} routeOf returns where they go, once the
   *   header is read
   */
  async #readObjects(reader, start, items, routeOf) {
    this.counters.streams += 1;
    /** @type {Route | undefined} */
    let route;
    const assembly = new Assembly();
    try {
      for (let bytes = start; ; ) {
        items.push(bytes);
        for (let item = items.poll(); item; item = items.poll()) {
          if ("header" in item) route = await routeOf(item.header);
          if (!route) return await this.#stop(reader, ResetCode.CANCELLED);
          if ("object" in item) {
            const { object } = item;
            if ("status" in object && object.status !== "normal") continue;
            if (object.payloadLength > BigInt(OBJECT_BYTES_MAX)) return await this.#stop(reader, ResetCode.EXCESSIVE_LOAD);
            const head = route.headOf(object);
            if (!route.isWanted(head)) return await this.#stop(reader, ResetCode.CANCELLED);
            assembly.begin(head, Number(object.payloadLength));
          } else if ("payload" in item) {
            assembly.add(item.payload);
          }
          const whole = assembly.take();
          if (whole) this.#deliver(route.sink, whole);
        }
        const { value, done } = await reader.read();
        if (done) {
          items.fin();
          return;
        }
        bytes = value;
      }
    } catch (error) {
      if (error instanceof Violation) throw error;
      this.counters.streamsReset += 1;
    } finally {
      route?.onEnd();
    }
  }

  async #readDatagrams() {
    /** @type {ReadableStreamDefaultReader<Uint8Array>} */
    const reader = this.transport.datagrams.readable.getReader();
    try {
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        const datagram = decodeDatagram(value);
        if (datagram === "padding" || datagram.status !== "normal") continue;
        const subscription = this.aliases.get(datagram.trackAlias);
        if (!subscription || subscription.isOver) continue;
        const { group, object, properties, payload } = datagram;
        this.#deliver(subscription.sink, { group, id: object, properties, payload });
      }
    } catch (error) {
      this.owner.onError(error);
    }
  }

  /**
   * @param {Sink} sink
   * @param {WholeObject} object
   */
  #deliver(sink, object) {
    this.counters.objects += 1;
    this.counters.bytes += object.payload.length;
    sink.onObject(object);
  }

  /**
   * Returns the subscription of an alias, once it is known.
   *
   * @param {bigint} alias
   * @returns {Promise<Subscription | undefined>}
   */
  async #subscriptionOf(alias) {
    const known = this.aliases.get(alias);
    if (known || this.streamsUnknown >= UNKNOWN_STREAMS_MAX) return known;
    this.streamsUnknown += 1;
    const waiting = this.awaited.get(alias) ?? new Set();
    this.awaited.set(alias, waiting);
    await new Promise((resolve) => {
      const wake = () => resolve(undefined);
      waiting.add(wake);
      setTimeout(wake, UNKNOWN_ALIAS_TIMEOUT_MS);
    });
    this.streamsUnknown -= 1;
    this.awaited.delete(alias);
    return this.aliases.get(alias);
  }

  /**
   * @param {ReadableStreamDefaultReader<Uint8Array>} reader
   * @param {number} code
   */
  async #stop(reader, code) {
    this.counters.streamsStopped += 1;
    await reader.cancel(streamError(code)).catch(ignore);
  }
}
