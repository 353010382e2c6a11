/**
 * Keeps a stream running: connects, reconnects with growing pauses, follows a relay's GOAWAY, and tries a second
 * connection beside the first if nothing arrives. Of several relays, each attempt after a loss uses the next.
 */

import { Refused, RequestCode } from "../moqt/error.js";
import { withTimeout } from "../moqt/timeout.js";
import { Reception, shownRelay } from "./reception.js";
import { inTurn, named, whyUnreachable } from "./relays.js";

/** The time without an object after which a second connection is tried, in milliseconds. */
export const WATCHDOG_MS = 1500;
/** The shortest and the longest pause between attempts, in milliseconds. */
const PAUSE_MIN_MS = 250;
const PAUSE_MAX_MS = 8000;
/** After a reception of this length the next pause is short again, in milliseconds. */
const GOOD_MS = 10_000;
/** The time for the page's server to name the relay, in milliseconds. */
export const TARGET_MS = 10_000;
/** What is shown if the page's server does not say where the stream is. */
const NO_ANSWER = "The page's server does not answer, so the address of the relay is unknown. Check that the server is running.";
/** How often the receiver checks whether objects have arrived, in milliseconds. */
export const LOOK_MS = 250;
/** The time for a connection that replaces a working one to deliver an object, in milliseconds. */
export const HANDOVER_MS = 10_000;
/** How long a replaced connection still delivers what is under way, in milliseconds. */
export const LINGER_MS = 1000;

/**
 * @typedef {import("./reception.js").Target} Target
 * @typedef {import("./reception.js").Events} Events
 *
 * @typedef {"connecting" | "waiting" | "subscribed" | "playing" | "ended" | "lost" | "stopped"} State
 *
 * @typedef {"connected" | "catalog" | "handover"} Occasion why there is a plan: a new connection, a new catalog, or a
 *   connection that replaces a working one
 *
 * @typedef {object} Handlers
 * @property {() => Promise<Target>} target called for each attempt
 * @property {(plan: import("./catalog.js").Plan, occasion: Occasion) => boolean} onPlan returns whether playing
 *   continues without a restart
 * @property {() => void} onUseless called for a catalog that cannot be played
 * @property {Events["sinkOf"]} sinkOf
 * @property {(state: State, reason: string) => void} onState
 *
 * @typedef {object} Counters
 * @property {number} connects
 * @property {number} reconnects attempts after a loss
 * @property {number} watchdogs second connections, tried because nothing arrived
 * @property {number} goAways
 */

/** A receiver of one stream. */
export class Receiver {
  /**
   * @param {"next" | "current"} join
   * @param {Handlers} handlers
   */
  constructor(join, handlers) {
    this.join = join;
    this.handlers = handlers;
    /** The reception whose objects are played.
     * @type {Reception | undefined} */
    this.main = undefined;
    /** A reception that replaces the main one with its first object.
     * @type {Reception | undefined} */
    this.spare = undefined;
    this.spareAt = -Infinity;
    /** The main reception for which a spare one is being created.
     * @type {Reception | undefined} */
    this.sparing = undefined;
    /** A replaced reception that still delivers what is under way.
     * @type {Reception | undefined} */
    this.leaving = undefined;
    /** Whether the main one's relay has sent GOAWAY, so that a spare one is needed whatever the main one delivers. */
    this.isGoingAway = false;
    this.isStopped = false;
    this.pauseMs = PAUSE_MIN_MS;
    /** Counts the relays that were lost, which says which of several is next. */
    this.turn = 0;
    /** The relay that the last GOAWAY named, if one did.
     * @type {string | undefined} */
    this.successor = undefined;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.retry = undefined;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.linger = undefined;
    /** @type {Counters} */
    this.counters = { connects: 0, reconnects: 0, watchdogs: 0, goAways: 0 };
    /** Whether the publisher has left. */
    this.hasEnded = false;
    /** Whether objects can be expected. */
    this.isPublished = false;
    /** The plan of each reception.
     * @type {WeakMap<Reception, import("./catalog.js").Plan>} */
    this.plans = new WeakMap();
  }

  /** @returns {import("../moqt/session.js").Session | undefined} the main session */
  get session() {
    return this.main?.session;
  }

  /** Receives until {@link stop}. */
  start() {
    this.watchdog = setInterval(() => this.#look(), LOOK_MS);
    this.#connect();
  }

  /** Stops receiving. */
  stop() {
    this.isStopped = true;
    clearInterval(this.watchdog);
    clearTimeout(this.retry);
    for (const reception of [this.main, this.spare, this.leaving]) reception?.close();
    clearTimeout(this.linger);
    this.handlers.onState("stopped", "");
  }

  /** Tries at once, for example because the network is available again. */
  hurry() {
    this.pauseMs = PAUSE_MIN_MS;
    if (!this.main && !this.isStopped && this.retry !== undefined) {
      clearTimeout(this.retry);
      this.#connect();
    }
  }

  async #connect() {
    this.retry = undefined;
    const reception = await this.#make();
    if (this.isStopped) return;
    if (typeof reception === "string") return this.#onLost(reception);
    this.#setMain(reception);
    this.handlers.onState("connecting", shownRelay(reception.target.relay));
    await this.#follow(reception);
  }

  /**
   * @param {string} [besides] the relay beside which another one is wanted
   * @returns {Promise<Reception | string>} a reception that has not begun, or why there is none
   */
  async #make(besides) {
    let target;
    try {
      target = await withTimeout(this.handlers.target(), TARGET_MS, "it did not answer in time");
    } catch (error) {
      return error instanceof RangeError ? error.message : NO_ANSWER;
    }
    const { successor } = this;
    const { relays = [target.relay] } = target;
    const known = inTurn(relays, successor);
    const next = () => known[this.turn % known.length];
    if (relays.length > 1 && next() === besides && besides !== successor) this.turn += 1;
    target.relay = next() ?? target.relay;
    // A publisher at a relay that goes away leaves it between two groups, and its next group is at another relay.
    const join = this.isGoingAway ? "current" : this.join;
    /** @type {Reception} */
    const reception = new Reception(target, join, {
      onPlan: (plan) => {
        const occasion = this.plans.has(reception) ? "catalog" : "connected";
        this.plans.set(reception, plan);
        if (this.main === reception) this.handlers.onPlan(plan, occasion);
      },
      onUseless: () => this.handlers.onUseless(),
      sinkOf: (track, place) => this.#sink(reception, track, place),
      onState: (state) => {
        if (this.main !== reception) return;
        this.isPublished = state === "subscribed";
        reception.objectAt = performance.now();
        // A publisher that has left is reported in other words than one that never came.
        if (!(this.hasEnded && state === "waiting")) this.handlers.onState(state, "");
        this.hasEnded = state === "ended" || (this.hasEnded && state === "waiting");
      },
      onGoAway: (uri) => this.#onGoAway(reception, uri),
    });
    return reception;
  }

  /**
   * Runs a reception to its end.
   *
   * @param {Reception} reception
   */
  async #follow(reception) {
    this.counters.connects += 1;
    const began = performance.now();
    const reason = await reception.run().catch((error) => plainWords(error, reception.target));
    if (this.isStopped) return;
    // A reception without any object may have waited just as long.
    if (reception === this.main && performance.now() - began > GOOD_MS) this.pauseMs = PAUSE_MIN_MS;
    if (reception === this.spare) {
      this.#giveUp(reception);
    } else if (reception === this.main) {
      this.#setMain(undefined);
      if (this.spare) this.#promote(this.spare);
      else this.#onLost(reason);
    }
  }

  /** @param {Reception | undefined} reception the one to play */
  #setMain(reception) {
    this.main = reception;
    this.isGoingAway = false;
  }

  /** @param {string} reason */
  #onLost(reason) {
    this.isPublished = false;
    this.turn += 1;
    this.counters.reconnects += 1;
    this.handlers.onState("lost", reason);
    const ms = this.pauseMs * (0.75 + Math.random() / 2);
    this.pauseMs = Math.min(this.pauseMs * 2, PAUSE_MAX_MS);
    this.retry = setTimeout(() => this.#connect(), ms);
  }

  /**
   * @param {Reception} reception
   * @param {import("./catalog.js").TrackPlan} track
   * @param {number} place
   * @returns {import("../moqt/session.js").Sink}
   */
  #sink(reception, track, place) {
    const make = () => this.handlers.sinkOf(track, place);
    // A spare reception has no sink before it replaces the main one.
    let inner = this.main === reception ? make() : undefined;
    const sink = () => {
      // The spare one delivers, and replaces the main one, which does not or soon will not. If the main one still
      // delivers, audio does not count: audio groups are short, and the picture would stop until its next group.
      if (this.spare === reception && (place === 0 || !this.isGoingAway)) this.#promote(reception);
      if (this.main === reception) inner ??= make();
      return this.main === reception || this.leaving === reception ? inner : undefined;
    };
    return {
      onHead: (head) => sink()?.onHead?.(head) !== false,
      onObject: (object) => sink()?.onObject(object),
      onStreamEnd: (group) => inner?.onStreamEnd?.(group),
    };
  }

  /** @param {Reception} reception */
  #promote(reception) {
    const before = this.main;
    const isHandover = before?.objectAt !== undefined && performance.now() - before.objectAt < WATCHDOG_MS;
    this.#setMain(reception);
    this.spare = undefined;
    const plan = this.plans.get(reception);
    this.isPublished = plan !== undefined;
    // A reception that has delivered nothing, because the main one closed earlier, is watched as well.
    if (plan) reception.objectAt ??= performance.now();
    const goesOn = plan !== undefined && this.handlers.onPlan(plan, isHandover ? "handover" : "connected");
    if (before && goesOn) this.#letGo(before);
    else before?.close();
  }

  /**
   * Closes a reception after the objects under way have arrived.
   *
   * @param {Reception} reception
   */
  #letGo(reception) {
    this.leaving?.close();
    clearTimeout(this.linger);
    this.leaving = reception;
    this.linger = setTimeout(() => {
      this.leaving = undefined;
      reception.close();
    }, LINGER_MS);
  }

  /** Checks whether objects have arrived lately. */
  #look() {
    const { main, spare } = this;
    if (!main?.session || main.objectAt === undefined) return;
    const now = performance.now();
    const isPast = (/** @type {number} */ ms) => now - this.spareAt > ms;
    if (this.isGoingAway) {
      if (!spare && isPast(this.pauseMs)) this.#trySpare();
      else if (spare && this.isPublished && isPast(HANDOVER_MS)) this.#giveUp(spare);
      return;
    }
    if (!this.isPublished) return;
    if (spare && main.objectAt > this.spareAt + LOOK_MS) {
      // The main reception continues.
      this.spare = undefined;
      spare.close();
    } else if (!spare && now - main.objectAt > WATCHDOG_MS && isPast(WATCHDOG_MS + this.pauseMs)) {
      this.counters.watchdogs += 1;
      this.#trySpare();
    }
  }

  /**
   * Gives up a connection to a relay where the stream is missing. Another attempt follows later.
   *
   * @param {Reception} spare
   */
  #giveUp(spare) {
    this.spare = undefined;
    this.#pauseLonger();
    spare.close();
  }

  /** Makes the next pause before a spare reception longer. */
  #pauseLonger() {
    this.spareAt = performance.now();
    this.pauseMs = Math.min(this.pauseMs * 2, PAUSE_MAX_MS);
  }

  /**
   * @param {Reception} reception
   * @param {string} uri
   */
  #onGoAway(reception, uri) {
    // A spare reception whose relay sends GOAWAY at once is of no use.
    if (reception === this.spare) this.#giveUp(reception);
    else if (reception !== this.main) return;
    this.counters.goAways += 1;
    this.isGoingAway ||= reception === this.main;
    const successor = named(uri);
    if (successor !== undefined) {
      this.successor = successor;
      // Each attempt is one turn on.
      this.turn = -1;
    }
    if (reception === this.main && !this.spare) this.#trySpare();
  }

  async #trySpare() {
    const { main } = this;
    // The page's server has not answered.
    if (this.sparing === main) return;
    this.sparing = main;
    this.turn += 1;
    this.spareAt = performance.now();
    const spare = await this.#make(main?.target.relay);
    // The main reception has ended in the meantime.
    if (this.sparing !== main) return;
    this.sparing = undefined;
    if (this.isStopped || this.main !== main) return;
    if (typeof spare === "string") return this.#pauseLonger();
    this.spare = spare;
    await this.#follow(spare);
  }
}

/**
 * Returns why a reception failed, in words for people.
 *
 * @param {unknown} error
 * @param {Target} target
 * @returns {string}
 */
function plainWords(error, target) {
  if (error instanceof Refused) {
    if (error.code === RequestCode.UNAUTHORIZED) {
      const missing = target.token ? "the token does not permit it" : "a token is needed. Add token=TOKEN to this page's address";
      return `The relay does not let you see “${target.namespace}”: ${missing}.`;
    }
    return `The relay refused the stream “${target.namespace}”: ${error.reason || error.message}`;
  }
  if (error instanceof Error && error.name === "WebTransportError") {
    return whyUnreachable(shownRelay(target.relay), target.certificateHashes.length > 0);
  }
  return error instanceof Error ? error.message : String(error);
}
