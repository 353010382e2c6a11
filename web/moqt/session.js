/**
 * A MOQT session over WebTransport, for a subscriber and a publisher.
 *
 * Objects go to a {@link Sink}. A protocol violation closes the session. This module does not reconnect.
 */

import { DRAFTS, draftOf, hasJoiningFetches, protocolOf } from "./draft.js";
import {
  DoneCode, RequestCode, Refused, ResetCode, SessionCode, Violation, nameOf,
} from "./error.js";
import { MessageReader, concat, encodeMessage } from "./message.js";
import { FetchReader, SubgroupReader, decodeDatagram, streamKind } from "./object.js";
import { Publication } from "./publication.js";
import { Assembly, RequestStream, ignore, streamError } from "./streams.js";
import { Subscription } from "./subscription.js";
import { withTimeout } from "./timeout.js";
import { lengthOf } from "./varint.js";

/** The time for connecting and SETUP, in milliseconds. */
export const CONNECT_TIMEOUT_MS = 10_000;
/** How long a stream waits for the message that defines its alias, in milliseconds. */
const UNKNOWN_ALIAS_TIMEOUT_MS = 1000;
/** Streams that may wait for it. Further ones are stopped. */
const UNKNOWN_STREAMS_MAX = 64;
/** The most bytes of one object. The stream of a larger one is stopped. */
export const OBJECT_BYTES_MAX = 16 << 20;
/** Data streams that are read at the same time. Further ones are stopped. */
export const STREAMS_MAX = 1024;

/**
 * @typedef {import("./name.js").FullTrackName} FullTrackName
 * @typedef {import("./parameter.js").Parameters} Parameters
 * @typedef {import("./property.js").Property} Property
 * @typedef {import("./streams.js").ObjectHead} ObjectHead
 * @typedef {import("./streams.js").WholeObject} WholeObject
 * @typedef {import("./subscription.js").Sink} Sink
 *
 * @typedef {object} Route where a stream's objects go
 * @property {Sink} sink
 * @property {(object: any) => ObjectHead} headOf returns the head of an item's object
 * @property {(head: ObjectHead) => boolean} isWanted whether the rest of the stream is wanted
 * @property {() => void} onEnd called at the end of the stream, complete or not
 *
 * @typedef {object} Options
 * @property {Uint8Array[]} [certificateHashes] SHA-256 hashes of trusted certificates
 * @property {string} [token] sent to the relay in SETUP
 * @property {string} [implementation] the name sent in SETUP
 * @property {string[]} [protocols] the WebTransport subprotocols of the drafts to offer, the preferred one first; all if absent
 *
 * @typedef {object} Counters
 * @property {number} objects
 * @property {number} bytes bytes of payload
 * @property {number} streams
 * @property {number} streamsReset reset by the peer
 * @property {number} streamsStopped stopped by this endpoint
 */

/** A session with a relay. */
export class Session {
  /**
   * @param {WebTransport} transport one that is connected
   * @param {import("./draft.js").Draft} draft
   */
  constructor(transport, draft) {
    this.transport = transport;
    this.draft = draft;
    /** @type {Map<bigint, Subscription>} */
    this.aliases = new Map();
    /** @type {Map<bigint, Set<() => void>>} */
    this.awaited = new Map();
    /** @type {Map<bigint, Sink>} */
    this.fetches = new Map();
    /** @type {Set<Subscription>} */
    this.subscriptions = new Set();
    this.nextRequestId = 0n;
    this.streamsOpen = 0;
    this.streamsUnknown = 0;
    this.isClosed = false;
    /** The peer is going away; a URI if it named one.
     * @type {((goAway: import("./message.js").GoAway) => void) | undefined} */
    this.onGoAway = undefined;
    /** @type {import("./message.js").Setup | undefined} */
    this.peer = undefined;
    /** @type {Counters} */
    this.counters = { objects: 0, bytes: 0, streams: 0, streamsReset: 0, streamsStopped: 0 };
    /** @type {string | undefined} */
    this.violation = undefined;
    /** Says why, once the session is over. Never fails.
     * @type {Promise<string>} */
    this.closed = transport.closed.then(
      ({ closeCode, reason }) => this.#over(`the relay closed the session: ${nameOf(SessionCode, closeCode ?? 0)} ${reason ?? ""}`.trim()),
      (error) => this.#over(`the connection was lost: ${message(error)}`),
    );
  }

  /**
   * Connects and exchanges SETUP.
   *
   * @param {string} url of the relay, with `https:`
   * @param {Options} options
   * @returns {Promise<Session>}
   */
  static async connect(url, options) {
    const hashes = options.certificateHashes ?? [];
    const protocols = options.protocols ?? DRAFTS.map(protocolOf);
    const transport = new WebTransport(url, {
      protocols,
      ...(hashes.length > 0
        ? { serverCertificateHashes: hashes.map((value) => ({ algorithm: "sha-256", value: Uint8Array.from(value) })) }
        : {}),
    });
    // A failed handshake rejects both promises, and one is handled.
    transport.closed.catch(ignore);
    try {
      await withTimeout(transport.ready, CONNECT_TIMEOUT_MS, "the relay did not answer in time");
      // A browser that does not tell the protocol offers one only.
      const { protocol } = /** @type {{ protocol?: string }} */ (/** @type {unknown} */ (transport));
      const draft = draftOf(protocol ?? (protocols.length === 1 ? protocols[0] : undefined));
      if (!draft) throw new Error(`the relay chose no draft of MOQT that was offered: ${protocol ?? "unknown"}`);
      const session = new Session(transport, draft);
      await withTimeout(session.#setup(options), CONNECT_TIMEOUT_MS, "the relay did not send its SETUP in time");
      return session;
    } catch (error) {
      transport.close();
      throw error;
    }
  }

  /** @param {Options} options */
  async #setup(options) {
    const control = await this.transport.createUnidirectionalStream();
    /** @type {WritableStreamDefaultWriter<Uint8Array>} */
    this.control = control.getWriter();
    const token = options.token ? utf8Token(options.token) : [];
    await this.control.write(encodeMessage({
      type: "SETUP",
      authorizationTokens: token,
      implementation: options.implementation ?? "weir-web",
    }, this.draft));
    /** @type {Promise<void>} */
    const ready = new Promise((resolve) => {
      this.onReady = resolve;
    });
    this.#readStreams();
    this.#readDatagrams();
    this.#refuseRequests();
    await Promise.race([ready, this.closed.then((reason) => Promise.reject(new Error(reason)))]);
  }

  /**
   * Closes the session.
   *
   * @param {number} [code]
   * @param {string} [reason]
   */
  close(code = SessionCode.NO_ERROR, reason = "") {
    if (this.isClosed) return;
    this.isClosed = true;
    try {
      this.transport.close({ closeCode: code, reason });
    } catch {
      // It was closed in the meantime.
    }
  }

  /**
   * Subscribes to a track.
   *
   * @param {FullTrackName} name
   * @param {Parameters} parameters
   * @param {Sink} sink
   * @param {Sink} [past] gets the earlier objects of the current group, in drafts in which SUBSCRIBE can request them. In
   *   other drafts, call {@link fetchJoining} afterwards
   * @returns {Promise<Subscription>} rejected with {@link Refused}
   */
  async subscribe(name, parameters, sink, past) {
    const requestId = this.#requestId();
    const subscription = new Subscription(requestId, sink);
    subscription.isFilled = past !== undefined && !hasJoiningFetches(this.draft);
    if (past && subscription.isFilled) {
      this.fetches.set(requestId, past);
      parameters = { ...parameters, fill: { filter: { type: "Recent", groups: 0n } } };
    }
    const stream = await this.#open({ type: "SUBSCRIBE", requestId, ...name, parameters });
    subscription.stream = stream;
    this.subscriptions.add(subscription);
    try {
      const answer = await this.#answer(stream);
      if (answer.type !== "SUBSCRIBE_OK") throw new Violation(`${answer.type} answers SUBSCRIBE`);
      subscription.ok = answer;
      // Nothing is there to fill the subscription with.
      if (!answer.parameters.largestObject) this.fetches.delete(requestId);
      if (this.aliases.get(answer.trackAlias)?.isOver === false) throw new Violation("a Track Alias is used twice", "DUPLICATE_TRACK_ALIAS");
      this.aliases.set(answer.trackAlias, subscription);
      for (const wake of this.awaited.get(answer.trackAlias) ?? []) wake();
      this.#follow(subscription, stream);
      return subscription;
    } catch (error) {
      this.subscriptions.delete(subscription);
      this.fetches.delete(requestId);
      this.#onError(error);
      throw error;
    }
  }

  /**
   * Fetches the objects before a subscription, from the beginning of the group that it joined in, unless SUBSCRIBE has
   * requested them.
   *
   * @param {Subscription} subscription
   * @param {bigint} groups how many earlier groups to fetch too
   * @param {Sink} sink
   */
  async fetchJoining(subscription, groups, sink) {
    if (subscription.isFilled) return;
    const requestId = this.#requestId();
    this.fetches.set(requestId, sink);
    try {
      if (!hasJoiningFetches(this.draft)) return await this.#fill(subscription, requestId, groups);
      const stream = await this.#open({
        type: "FETCH",
        requestId,
        fetch: { type: "RelativeJoining", requestId: subscription.requestId, groups },
        parameters: {},
      });
      const answer = await this.#answer(stream);
      if (answer.type !== "FETCH_OK") throw new Violation(`${answer.type} answers FETCH`);
    } catch (error) {
      this.fetches.delete(requestId);
      this.#onError(error);
      throw error;
    }
  }

  /**
   * Requests a fill of a subscription with an update of it. A stream with the ID of the update brings the objects.
   *
   * @param {Subscription} subscription
   * @param {bigint} requestId
   * @param {bigint} groups
   */
  async #fill(subscription, requestId, groups) {
    if (subscription.isOver || !subscription.stream) throw new Error("the subscription is over");
    const answered = subscription.awaitUpdate();
    answered.catch(ignore);
    await subscription.stream.send({
      type: "REQUEST_UPDATE", requestId, parameters: { fill: { filter: { type: "Recent", groups } } },
    });
    await answered;
  }

  /**
   * Offers a track.
   *
   * @param {FullTrackName} name
   * @param {bigint} trackAlias unique in this session
   * @param {Property[]} properties of the track, in ascending order of type
   * @returns {Promise<Publication>} rejected with {@link Refused}
   */
  async publish(name, trackAlias, properties) {
    const stream = await this.#open({
      type: "PUBLISH", requestId: this.#requestId(), ...name, trackAlias, parameters: {}, properties,
    });
    const answer = await this.#answer(stream);
    if (answer.type !== "REQUEST_OK") throw new Violation(`${answer.type} answers PUBLISH`);
    const publication = new Publication(this.transport, trackAlias, async (streams) => {
      await stream.send({ type: "PUBLISH_DONE", code: BigInt(DoneCode.TRACK_ENDED), streamCount: BigInt(streams), reason: "" });
      await stream.writer.close();
    });
    publication.update(answer.parameters);
    this.#followPublication(publication, stream);
    return publication;
  }

  #requestId() {
    const id = this.nextRequestId;
    this.nextRequestId += 2n;
    return id;
  }

  /**
   * @param {import("./message.js").Message} request
   * @returns {Promise<RequestStream>}
   */
  async #open(request) {
    const stream = new RequestStream(await this.transport.createBidirectionalStream(), this.draft);
    await stream.send(request);
    return stream;
  }

  /**
   * Returns the response to a request.
   *
   * @param {RequestStream} stream
   */
  async #answer(stream) {
    const answer = await stream.next();
    if (!answer) throw new Violation("a request was closed without an answer");
    if (answer.type === "REQUEST_ERROR") throw refusal(answer);
    return answer;
  }

  /**
   * Waits for the end of a subscription.
   *
   * @param {Subscription} subscription
   * @param {RequestStream} stream
   */
  async #follow(subscription, stream) {
    /** @type {number} */
    let code = DoneCode.INTERNAL_ERROR;
    let reason = "the relay ended the subscription";
    try {
      for (let next = await stream.next(); next; next = await stream.next()) {
        if (next.type === "PUBLISH_DONE") {
          code = Number(next.code);
          reason = next.reason;
          break;
        }
        if (next.type === "GOAWAY") {
          code = DoneCode.GOING_AWAY;
          break;
        }
        if (next.type === "REQUEST_OK") subscription.onUpdated(undefined);
        else if (next.type === "REQUEST_ERROR") subscription.onUpdated(refusal(next));
        else if (next.type !== "PUBLISH_STATE_NOTIFY") throw new Violation(`${next.type} follows SUBSCRIBE_OK`);
      }
    } catch (error) {
      this.#onError(error);
    }
    this.subscriptions.delete(subscription);
    subscription.onStreamEnd();
    const alias = subscription.ok?.trackAlias;
    if (alias !== undefined && this.aliases.get(alias) === subscription) this.aliases.delete(alias);
    if (subscription.isOver || this.isClosed) return;
    subscription.isOver = true;
    subscription.sink.onDone?.(code, reason);
  }

  /**
   * @param {Publication} publication
   * @param {RequestStream} stream
   */
  async #followPublication(publication, stream) {
    try {
      for (let next = await stream.next(); next; next = await stream.next()) {
        if (next.type !== "REQUEST_UPDATE") continue;
        publication.update(next.parameters);
        await stream.send({ type: "REQUEST_OK", parameters: {}, properties: [] });
      }
    } catch (error) {
      this.#onError(error);
    }
    publication.end();
  }

  async #readStreams() {
    /** @type {ReadableStreamDefaultReader<ReadableStream<Uint8Array>>} */
    const streams = this.transport.incomingUnidirectionalStreams.getReader();
    try {
      for (;;) {
        const { value, done } = await streams.read();
        if (done) return;
        this.#readStream(value).catch((error) => this.#onError(error));
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
          return await this.#readControl(reader, start);
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
   * @param {ReadableStreamDefaultReader<Uint8Array>} reader
   * @param {Uint8Array} start
   */
  async #readControl(reader, start) {
    if (this.peer) throw new Violation("a second control stream");
    const messages = new MessageReader(this.draft);
    for (let bytes = start; ; ) {
      messages.push(bytes);
      for (let next = messages.poll(); next; next = messages.poll()) {
        if (next.type === "SETUP" && !this.peer) {
          this.peer = next;
          this.onReady?.();
        } else if (next.type === "GOAWAY" && this.peer) {
          this.onGoAway?.(next);
        } else {
          throw new Violation(`${next.type} on the control stream`);
        }
      }
      const { value, done } = await reader.read();
      if (done) throw new Violation("the control stream was closed");
      bytes = value;
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
      this.#onError(error);
    }
  }

  /** Refuses the peer's requests, since a client serves none. */
  async #refuseRequests() {
    /** @type {ReadableStreamDefaultReader<WebTransportBidirectionalStream>} */
    const streams = this.transport.incomingBidirectionalStreams.getReader();
    try {
      for (;;) {
        const { value, done } = await streams.read();
        if (done) return;
        const stream = new RequestStream(value, this.draft);
        stream
          .send({ type: "REQUEST_ERROR", code: BigInt(RequestCode.NOT_SUPPORTED), reason: "this client accepts no requests" })
          .then(() => stream.writer.close())
          .catch(ignore);
      }
    } catch {
      // The session has ended, which `closed` reports.
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

  /** @param {unknown} error */
  #onError(error) {
    if (!(error instanceof Violation) || this.isClosed) return;
    this.violation = error.message;
    this.close(SessionCode[error.code], error.message);
  }

  /** @param {string} reason */
  #over(reason) {
    this.isClosed = true;
    this.onReady?.();
    return this.violation ? `the relay violated the protocol: ${this.violation}` : reason;
  }
}

/**
 * Returns a token without a registered type.
 *
 * @param {string} token
 * @returns {import("./parameter.js").Token[]}
 */
function utf8Token(token) {
  return [{ aliasType: "USE_VALUE", tokenType: 0n, value: new TextEncoder().encode(token) }];
}

/** @param {import("./message.js").RequestError} error */
function refusal({ code, reason, retryAfter, redirect }) {
  return new Refused(code, reason, retryAfter, redirect);
}

/** @param {unknown} error */
function message(error) {
  return error instanceof Error ? error.message : String(error);
}
