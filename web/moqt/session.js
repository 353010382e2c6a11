/**
 * A MOQT session over WebTransport, for a subscriber and a publisher.
 *
 * Objects go to a {@link Sink}. A protocol violation closes the session. This module does not reconnect.
 */

import { DataStreams } from "./data-streams.js";
import { DRAFTS, draftOf, hasJoiningFetches, protocolOf } from "./draft.js";
import { DoneCode, Refused, SessionCode, Violation, nameOf } from "./error.js";
import { MessageReader, encodeMessage } from "./message.js";
import { Offers } from "./offers.js";
import { Publication } from "./publication.js";
import { RequestStream, ignore } from "./streams.js";
import { Subscription } from "./subscription.js";
import { withTimeout } from "./timeout.js";

/** The time for connecting and SETUP, in milliseconds. */
export const CONNECT_TIMEOUT_MS = 10_000;

/**
 * @typedef {import("./name.js").FullTrackName} FullTrackName
 * @typedef {import("./parameter.js").Parameters} Parameters
 * @typedef {import("./property.js").Property} Property
 * @typedef {import("./subscription.js").Sink} Sink
 *
 * @typedef {object} Options
 * @property {Uint8Array[]} [certificateHashes] SHA-256 hashes of trusted certificates
 * @property {string} [token] sent to the relay in SETUP
 * @property {string} [implementation] the name sent in SETUP
 * @property {string[]} [protocols] the WebTransport subprotocols of the drafts to offer, the preferred one first; all if absent
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
    /** The objects that the peer sends. */
    this.data = new DataStreams(transport, draft, {
      readControl: (reader, start) => this.#readControl(reader, start),
      onError: (error) => this.#onError(error),
    });
    /** The tracks of announced namespaces. */
    this.offers = new Offers(transport);
    /** @type {Set<Subscription>} */
    this.subscriptions = new Set();
    this.nextRequestId = 0n;
    this.isClosed = false;
    /** The peer is going away; a URI if it named one.
     * @type {((goAway: import("./message.js").GoAway) => void) | undefined} */
    this.onGoAway = undefined;
    /** @type {import("./message.js").Setup | undefined} */
    this.peer = undefined;
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
    this.data.start();
    this.#serveRequests();
    await Promise.race([ready, this.closed.then((reason) => Promise.reject(new Error(reason)))]);
  }

  /** @returns {import("./data-streams.js").Counters} */
  get counters() {
    return this.data.counters;
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
      this.data.fetches.set(requestId, past);
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
      if (!answer.parameters.largestObject) this.data.fetches.delete(requestId);
      this.data.route(answer.trackAlias, subscription);
      this.#follow(subscription, stream);
      return subscription;
    } catch (error) {
      this.subscriptions.delete(subscription);
      this.data.fetches.delete(requestId);
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
    this.data.fetches.set(requestId, sink);
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
      this.data.fetches.delete(requestId);
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

  /**
   * Announces a namespace. The relay subscribes to those tracks of {@link Session.offers} that it wants.
   *
   * @param {import("./name.js").Namespace} namespace
   * @returns {Promise<void>} rejected with {@link Refused}
   */
  async publishNamespace(namespace) {
    const stream = await this.#open({
      type: "PUBLISH_NAMESPACE", requestId: this.#requestId(), namespace, parameters: {},
    });
    const answer = await this.#answer(stream);
    if (answer.type !== "REQUEST_OK") throw new Violation(`${answer.type} answers PUBLISH_NAMESPACE`);
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
    this.data.remove(subscription);
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

  /** Answers the peer's requests. */
  async #serveRequests() {
    /** @type {ReadableStreamDefaultReader<WebTransportBidirectionalStream>} */
    const streams = this.transport.incomingBidirectionalStreams.getReader();
    try {
      for (;;) {
        const { value, done } = await streams.read();
        if (done) return;
        this.offers.serve(new RequestStream(value, this.draft)).catch((error) => this.#onError(error));
      }
    } catch {
      // The session has ended, which `closed` reports.
    }
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
