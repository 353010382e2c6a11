/**
 * One attempt to receive a stream: a session, its catalog, and its tracks.
 */

import { DoneCode, Refused, RequestCode } from "../moqt/error.js";
import { namespaceOf } from "../moqt/name.js";
import { utf8 } from "../moqt/cursor.js";
import { Session } from "../moqt/session.js";
import { STRATEGIES } from "../playout/strategy.js";
import { CATALOG_TRACK, EARLIER_CATALOG_TRACK, INIT_TRACK, initTracks, planOfInit, planText, readCatalog } from "./catalog.js";

/** The rendezvous timeout: how long the relay may wait for a publisher, in milliseconds. */
const RENDEZVOUS_MS = 5000n;
/** The time for the object of a metadata track, in milliseconds. */
const HELD_TIMEOUT_MS = 5000;
/** The shortest time after which tracks are asked for again when the relay has ended a subscription, in milliseconds. So many
 * viewers do not come back at one moment. */
const RESUME_MS = 1000;
/** Audio is sent first, since a gap in it is audible; then the metadata; then video. */
const AUDIO_PRIORITY = 64n;
const HELD_PRIORITY = 32n;

/**
 * @typedef {import("./catalog.js").Plan} Plan
 * @typedef {import("./catalog.js").TrackPlan} TrackPlan
 *
 * @typedef {object} Target the location of a stream
 * @property {string} relay URL with `https:`
 * @property {string[]} [relays] this relay and those to use when it is lost, in order; absent if there is one
 * @property {Uint8Array[]} certificateHashes
 * @property {string} namespace with its fields separated by `/`
 * @property {string} [token]
 * @property {string[]} [protocols] WebTransport subprotocols of the drafts to offer; all if absent
 * @property {string} [strategy] the delivery strategy, if there is no catalog
 *
 * @typedef {object} Events the callbacks of a reception
 * @property {(plan: Plan) => void} onPlan called with the first plan and with each later one
 * @property {(track: TrackPlan, place: number) => import("../moqt/session.js").Sink} sinkOf returns the sink of a
 *   track; `place` is its index among the video tracks, or -1
 * @property {(state: "waiting" | "subscribed" | "ended") => void} onState there is no publisher; objects can arrive;
 *   the publisher has ended the stream
 * @property {(uri: string) => void} onGoAway called at a GOAWAY of the relay
 * @property {() => void} [onUseless] called for a catalog that cannot be played
 */

/** The stream has no publisher. */
export class NotPublished extends Error {}

/**
 * Returns a relay's URL as it may be shown and stored: its query may hold a token.
 *
 * @param {string} relay
 * @returns {string}
 */
export function shownRelay(relay) {
  return relay.replace(/[?#].*$/s, "?redacted");
}

/** A reception, from connecting to the end of its session. */
export class Reception {
  /**
   * @param {Target} target
   * @param {"next" | "current"} join the joining point: the next group, or the current one
   * @param {Events} events
   */
  constructor(target, join, events) {
    this.target = target;
    this.join = join;
    this.events = events;
    this.namespace = namespaceOf(target.namespace);
    /** @type {Session | undefined} */
    this.session = undefined;
    /** @type {import("../moqt/subscription.js").Subscription[]} */
    this.subscriptions = [];
    this.isClosed = false;
    /** When the last object came, by `performance.now()`.
     * @type {number | undefined} */
    this.objectAt = undefined;
    /** Counts plans, so that a newer plan stops the subscriptions of an older one. */
    this.planNumber = 0;
    /** The text of the current catalog. */
    this.catalog = "";
    /** The current plan as text, until one of its tracks ends. */
    this.played = "";
    /** Counts publishers that left. If one had several metadata tracks, each of them ends. */
    this.departures = 0;
  }

  /**
   * Connects, and receives until the end of the session.
   *
   * @returns {Promise<string>} why it ended; rejected if it never began
   */
  async run() {
    const { relay, certificateHashes, token, protocols } = this.target;
    const session = await Session.connect(relay, {
      certificateHashes, ...(token ? { token } : {}), ...(protocols ? { protocols } : {}),
    });
    this.session = session;
    if (this.isClosed) session.close();
    session.onGoAway = ({ newSessionUri }) => this.events.onGoAway(newSessionUri);
    const over = session.closed;
    await Promise.race([over, this.#receive(session)]);
    return over;
  }

  /** Ends the reception. */
  close() {
    this.isClosed = true;
    this.session?.close();
  }

  /** @param {Session} session */
  async #receive(session) {
    while (!session.isClosed) {
      try {
        await this.#begin(session);
        return;
      } catch (error) {
        if (session.isClosed) return;
        if (!(error instanceof NotPublished)) {
          // The session is of no more use, and the receiver tries again.
          session.close();
          throw error;
        }
        this.events.onState("waiting");
      }
    }
  }

  /**
   * Finds the tracks, and subscribes to them.
   *
   * @param {Session} session
   */
  async #begin(session) {
    const found = await this.#held(session, CATALOG_TRACK, undefined, (json) => this.#onCatalog(session, json));
    if (found) return this.#applyCatalog(session, found);
    const segment = await this.#held(session, INIT_TRACK, undefined, () => {});
    // If a publisher came between the two requests, its catalog says how the stream is packaged and delivered.
    const since = segment && (await this.#held(session, CATALOG_TRACK, undefined, (json) => this.#onCatalog(session, json)));
    if (since) return this.#applyCatalog(session, since);
    const strategy = this.target.strategy ?? "weir";
    const tracks = STRATEGIES[strategy]?.tracks ?? ["video"];
    if (segment) return this.#apply(session, planOfInit(segment, tracks, strategy));
    const earlier = await this.#held(session, EARLIER_CATALOG_TRACK, undefined, (json) => this.#onCatalog(session, json));
    if (earlier) return this.#applyCatalog(session, earlier);
    this.events.onState("waiting");
    const late = await this.#held(session, CATALOG_TRACK, RENDEZVOUS_MS, (json) => this.#onCatalog(session, json));
    if (!late) throw new NotPublished();
    return this.#applyCatalog(session, late);
  }

  /**
   * Returns the object of a metadata track.
   *
   * @param {Session} session
   * @param {string} name
   * @param {bigint | undefined} rendezvousTimeout
   * @param {(payload: Uint8Array) => void} onUpdate called with each later object
   * @returns {Promise<Uint8Array | undefined>} undefined if there is no such track
   */
  async #held(session, name, rendezvousTimeout, onUpdate) {
    /** @type {(payload: Uint8Array) => void} */
    let resolve = () => {};
    /** @type {Promise<Uint8Array>} */
    const first = new Promise((done) => {
      resolve = done;
    });
    let isFirst = true;
    const { departures } = this;
    const sink = {
      onObject: (/** @type {import("../moqt/streams.js").WholeObject} */ object) => {
        if (isFirst) resolve(object.payload);
        else onUpdate(object.payload);
        isFirst = false;
      },
      onDone: () => this.#onHeldDone(session, subscription, departures),
    };
    /** @type {import("../moqt/subscription.js").Subscription | undefined} */
    let subscription;
    try {
      subscription = await session.subscribe(
        { namespace: this.namespace, trackName: utf8(name) },
        {
          filter: { type: "LargestObject" },
          subscriberPriority: HELD_PRIORITY,
          ...(rendezvousTimeout === undefined ? {} : { rendezvousTimeout }),
        },
        sink,
        { onObject: sink.onObject },
      );
      // If nothing was published yet, the subscription itself delivers the object.
      if (subscription.ok?.parameters.largestObject) {
        await session.fetchJoining(subscription, 0n, { onObject: sink.onObject }).catch(() => {});
      }
    } catch (error) {
      if (error instanceof Refused && isAbsent(error)) return undefined;
      throw error;
    }
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    const late = new Promise((done) => {
      timer = setTimeout(() => done(undefined), HELD_TIMEOUT_MS);
    });
    const payload = await /** @type {Promise<Uint8Array | undefined>} */ (Promise.race([first, late]));
    clearTimeout(timer);
    if (!payload) subscription.cancel();
    return payload;
  }

  /**
   * Handles the end of the catalog: the publisher has left, and may reconnect.
   *
   * @param {Session} session
   * @param {import("../moqt/subscription.js").Subscription | undefined} subscription
   * @param {number} departures the publishers that had left when it began
   */
  #onHeldDone(session, subscription, departures) {
    if (session.isClosed || this.isClosed || !subscription || departures !== this.departures) return;
    this.departures += 1;
    this.events.onState("ended");
    this.#cancelAll();
    this.#receive(session).catch(() => session.close());
  }

  /**
   * @param {Session} session
   * @param {Uint8Array} json
   */
  #onCatalog(session, json) {
    // Publishers repeat catalogs for late subscribers.
    const text = new TextDecoder().decode(json);
    if (text === this.catalog) return;
    this.catalog = text;
    this.#plan(session, json).then(
      (plan) => {
        // Some publish a new one whenever their estimate of the bit rate improves.
        if (this.catalog !== text || this.played === planText(plan)) return;
        this.#cancelAll();
        this.#apply(session, plan).catch(() => session.close());
      },
      (error) => {
        console.warn("the new catalog cannot be used", error);
        this.events.onUseless?.();
      },
    );
  }

  /**
   * @param {Session} session
   * @param {Uint8Array} json
   */
  async #applyCatalog(session, json) {
    this.catalog = new TextDecoder().decode(json);
    return this.#apply(session, await this.#plan(session, json));
  }

  /**
   * Returns the plan of a catalog, with the init segments that it names.
   *
   * @param {Session} session
   * @param {Uint8Array} json
   * @returns {Promise<Plan>}
   */
  async #plan(session, json) {
    /** @type {Map<string, Uint8Array>} */
    const segments = new Map();
    for (const name of initTracks(json)) {
      const segment = await this.#held(session, name, undefined, () => {});
      if (segment) segments.set(name, segment);
    }
    return readCatalog(json, segments);
  }

  #cancelAll() {
    this.planNumber += 1;
    this.played = "";
    for (const subscription of this.subscriptions) subscription.cancel();
    this.subscriptions = [];
  }

  /**
   * @param {Session} session
   * @param {Plan} plan
   */
  async #apply(session, plan) {
    this.planNumber += 1;
    const number = this.planNumber;
    this.played = planText(plan);
    this.events.onPlan(plan);
    const tracks = plan.video.map((track, place) => ({ track, place }));
    if (plan.audio) tracks.push({ track: plan.audio, place: -1 });
    const resume = () => this.#resume(session, plan, number);
    await Promise.all(tracks.map(({ track, place }) => this.#subscribe(session, track, place, number, resume)));
    this.events.onState("subscribed");
  }

  /**
   * Subscribes again after a while, because the relay has ended a subscription before the end of its track: the viewer was too
   * slow, or one of several publishers broke the track.
   *
   * @param {Session} session
   * @param {Plan} plan
   * @param {number} number its number
   */
  #resume(session, plan, number) {
    setTimeout(() => {
      if (this.planNumber !== number || this.isClosed || session.isClosed) return;
      this.#cancelAll();
      this.#apply(session, plan).catch(() => session.close());
    }, RESUME_MS * (1 + Math.random()));
  }

  /**
   * @param {Session} session
   * @param {TrackPlan} track
   * @param {number} place
   * @param {number} number
   * @param {() => void} resume called if the relay ends the subscription before the end of the track
   */
  async #subscribe(session, track, place, number, resume) {
    const inner = this.events.sinkOf(track, place);
    const isCurrent = () => this.planNumber === number && !this.isClosed;
    /** @type {import("../moqt/session.js").Sink} */
    const sink = {
      onHead: (head) => {
        if (!isCurrent()) return false;
        this.objectAt = performance.now();
        return inner.onHead?.(head) !== false;
      },
      onObject: (object) => {
        if (!isCurrent()) return;
        this.objectAt = performance.now();
        inner.onObject(object);
      },
      onStreamEnd: (group) => {
        if (isCurrent()) inner.onStreamEnd?.(group);
      },
      onDone: (code) => {
        if (!isCurrent()) return;
        this.played = "";
        this.events.onState("ended");
        if (!OVER.includes(code)) resume();
      },
    };
    const joinsCurrent = this.join === "current" && place >= 0;
    try {
      const subscription = await session.subscribe(
        { namespace: this.namespace, trackName: utf8(track.name) },
        {
          filter: { type: joinsCurrent ? "LargestObject" : "NextGroupStart" },
          rendezvousTimeout: RENDEZVOUS_MS,
          ...(place < 0 ? { subscriberPriority: AUDIO_PRIORITY } : {}),
        },
        sink,
        joinsCurrent ? { onObject: sink.onObject } : undefined,
      );
      if (!isCurrent()) return subscription.cancel();
      this.subscriptions.push(subscription);
      if (joinsCurrent && subscription.ok?.parameters.largestObject) {
        // A refused fetch means that there are no earlier objects.
        await session.fetchJoining(subscription, 0n, { onObject: sink.onObject }).catch(() => {});
      }
    } catch (error) {
      // Without its audio the stream can still be seen.
      if (place < 0 && error instanceof Refused) return;
      if (error instanceof Refused && isAbsent(error)) throw new NotPublished();
      throw error;
    }
  }
}

/** The codes of PUBLISH_DONE after which a track is over here; at a relay that goes away, the receiver looks for another.
 * @type {number[]} */
const OVER = [DoneCode.TRACK_ENDED, DoneCode.SUBSCRIPTION_ENDED, DoneCode.GOING_AWAY];

/** @param {Refused} error */
function isAbsent({ code }) {
  /** @type {number[]} */
  const absent = [RequestCode.DOES_NOT_EXIST, RequestCode.TIMEOUT];
  return absent.includes(code);
}
