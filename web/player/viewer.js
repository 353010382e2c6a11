/**
 * A live stream on a canvas: passes what arrives from the relay through the rules of playout to decoder and screen.
 */

import { Freshness } from "../playout/freshness.js";
import { Player } from "../playout/player.js";
import { Sequence } from "../playout/sequence.js";
import { STRATEGIES } from "../playout/strategy.js";
import { Succession } from "../playout/succession.js";
import { AudioOutput } from "./audio.js";
import { planText } from "./catalog.js";
import { nowUs } from "./now.js";
import { Unpacker, tagOf } from "./packaging.js";
import { Receiver } from "./receiver.js";
import { shownRelay } from "./reception.js";
import { Records } from "./records.js";
import { VideoOutput } from "./video.js";

/** The bounds of an adaptive jitter buffer, in microseconds. */
const ADAPTIVE = { minUs: 40_000, maxUs: 400_000 };
/** The least buffer with audio, in which each gap is audible. */
const SOUND_MIN_US = 80_000;
/** Media that may wait beyond the target, in microseconds. More accumulates on a machine that was suspended or is too
 * slow. Catching up would take too long then, so playing continues at the newest keyframe. */
const BEHIND_MAX_US = 1_000_000;
/** Objects that are remembered, so that none is played twice if two connections deliver it. */
const SEEN_MAX = 4096;
/** The version of the export's form, which is that of `weir live play --json`. */
export const REPORT_SCHEMA = 3;
/** The strategy of a stream that names none, or an unknown one. */
const USUAL_STRATEGY = "weir";
/** The difference between picture and audio that is not corrected, in microseconds. */
const IN_SYNC_US = 5_000;

/**
 * @typedef {object} Settings
 * @property {"next" | "current"} join the joining point
 * @property {"strategy" | "adaptive" | number} buffer as the strategy says, adapted to arrivals, or milliseconds
 *
 * @typedef {import("./reception.js").Target} Target
 * @typedef {import("./packaging.js").MediaFrame} MediaFrame
 *
 * @typedef {object} Handlers
 * @property {() => Promise<Target>} target
 * @property {(state: import("./receiver.js").State, reason: string) => void} onState
 * @property {(reason: string) => void} onProblem
 */

/** Plays one stream. */
export class Viewer {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {Settings} settings
   * @param {Handlers} handlers
   */
  constructor(canvas, settings, handlers) {
    this.settings = settings;
    this.handlers = handlers;
    this.video = new VideoOutput(canvas, handlers.onProblem);
    this.audio = new AudioOutput();
    this.records = new Records(nowUs());
    /** @type {import("./catalog.js").Plan | undefined} */
    this.plan = undefined;
    this.strategy = USUAL_STRATEGY;
    this.player = new Player(this.#playerSettings());
    /** @type {Map<number, import("./records.js").FrameRecord>} frames in the player */
    this.inPlayer = new Map();
    this.nextNumber = 0;
    /** @type {Sequence<() => void> | undefined} */
    this.sequence = undefined;
    /** Groups with an open stream, for the sequence.
     * @type {Set<number>} */
    this.openGroups = new Set();
    /** @type {Freshness | undefined} */
    this.freshness = undefined;
    /** @type {Set<string>} */
    this.seen = new Set();
    this.succession = new Succession();
    this.soundSuccession = new Succession();
    /** Frames that were dropped, by reason. */
    this.dropped = { late: 0, overflow: 0, hidden: 0, undecodable: 0, behind: 0 };
    /** How often playing jumped to the live edge because too much waited. */
    this.jumps = 0;
    this.streamsRefused = 0;
    /** Objects without a frame, and catalogs that could not be played. */
    this.objectsUnknown = 0;
    /** Catalogs that replaced an earlier one. */
    this.catalogsFollowed = 0;
    /** Publishers that replaced an earlier one without a new catalog. */
    this.publishersFollowed = 0;
    /** Frames of a publisher that was replaced. */
    this.framesOfFormer = 0;
    /** Counts plans. Objects of older plans are dropped. */
    this.epoch = 0;
    this.oldestEpoch = 0;
    /** Whether those objects belong to another publisher. */
    this.isFormerLeft = false;
    /** The plans of the newest frame and the newest audio chunk. */
    this.newestEpoch = { video: 0, audio: 0 };
    this.restarts = 0;
    this.isHidden = false;
    this.isPlaying = false;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.receiver = new Receiver(settings.join, {
      target: handlers.target,
      onPlan: (plan, occasion) => this.#onPlan(plan, occasion),
      onUseless: () => {
        this.objectsUnknown += 1;
      },
      sinkOf: (track, place) => this.#sinkOf(track, place),
      onState: (state, reason) => {
        // A new catalog does not interrupt the picture.
        if (state === "subscribed" && this.isPlaying) return;
        if (state !== "playing") this.isPlaying = false;
        if (state === "ended") {
          this.player.finish(nowUs());
          this.#tick();
        }
        handlers.onState(state, reason);
      },
    });
  }

  /** Starts. */
  start() {
    this.receiver.start();
  }

  /** Stops. */
  stop() {
    clearTimeout(this.timer);
    this.receiver.stop();
    this.video.close();
    this.audio.close();
  }

  /**
   * Notes whether the page is visible. A browser delays timers of hidden pages, so nothing is decoded there.
   * Afterwards, playing continues at the live edge with the next keyframe.
   *
   * @param {boolean} isHidden
   */
  setHidden(isHidden) {
    if (isHidden === this.isHidden) return;
    this.isHidden = isHidden;
    this.#restart();
    if (!isHidden) this.receiver.hurry();
  }

  /**
   * Changes the buffer.
   *
   * @param {Settings["buffer"]} buffer
   */
  setBuffer(buffer) {
    this.settings.buffer = buffer;
    this.#adjust();
  }

  /** Enables audio. Works only after the user has interacted with the page; fails if the browser refuses. */
  async enableSound() {
    await this.audio.enable();
    this.#adjust();
  }

  /** Applies the current settings to the player. */
  #adjust() {
    this.player.settings = this.#playerSettings();
    this.player.target.buffering = this.player.settings.buffering;
  }

  /** @returns {import("../playout/player.js").PlayerSettings} */
  #playerSettings() {
    const { player } = STRATEGIES[this.strategy] ?? STRATEGIES.weir;
    const { buffer } = this.settings;
    if (buffer === "strategy") return player;
    if (buffer !== "adaptive") return { ...player, buffering: { fixedUs: buffer * 1000 } };
    if (!this.audio.isRunning) return { ...player, buffering: ADAPTIVE };
    // A pause that ends with the first picture is followed by a second one, which is audible.
    return { ...player, buffering: { ...ADAPTIVE, minUs: SOUND_MIN_US }, resumesAtOnce: false };
  }

  /**
   * Handles a new plan.
   *
   * @param {import("./catalog.js").Plan} plan
   * @param {import("./receiver.js").Occasion} occasion
   * @returns {boolean} whether playing continues without a restart
   */
  #onPlan(plan, occasion) {
    const { plan: before } = this;
    const isSame = before !== undefined && planText(before) === planText(plan);
    if (before && (occasion === "catalog" || !isSame)) this.catalogsFollowed += 1;
    this.epoch += 1;
    this.records.interrupt();
    // A sequence cannot continue with the streams of another connection.
    if (occasion === "handover" && isSame && !this.sequence) return true;
    this.plan = plan;
    this.strategy = plan.strategy !== undefined && Object.hasOwn(STRATEGIES, plan.strategy) ? plan.strategy : USUAL_STRATEGY;
    this.oldestEpoch = this.epoch;
    this.isFormerLeft = false;
    this.seen.clear();
    this.succession = new Succession();
    this.#restart();
    this.video.setPlan(plan.video[0]);
    this.audio.setPlan(plan.audio).then(() => this.#adjust());
    return false;
  }

  /** Drops waiting frames. The next keyframe starts playing again. */
  #restart() {
    this.restarts += 1;
    this.player = new Player(this.#playerSettings());
    const { inSequence, stopsStale } = this.player.settings;
    this.sequence = inSequence ? new Sequence() : undefined;
    this.openGroups.clear();
    this.freshness = stopsStale ? new Freshness() : undefined;
    this.inPlayer.clear();
    this.video.restart();
    this.audio.follow(null, 1);
  }

  /**
   * @param {import("./catalog.js").TrackPlan} track
   * @param {number} place
   * @returns {import("../moqt/session.js").Sink}
   */
  #sinkOf(track, place) {
    const unpacker = new Unpacker(track);
    const { epoch } = this;
    if (place < 0) {
      return {
        onObject: (object) => {
          // If two connections deliver audio, the newer one is played. A hidden page plays none.
          if (this.isHidden || epoch < this.newestEpoch.audio) return;
          const frames = unpacker.read(object, nowUs());
          if (this.#isSoundOfFormer(frames, Number(object.group), epoch) || this.#isSeen(place, object)) return;
          this.newestEpoch.audio = epoch;
          for (const frame of frames) this.audio.push(frame);
        },
      };
    }
    return {
      onHead: ({ group, subgroup, properties }) => {
        if (this.sequence && place === 0) this.openGroups.add(Number(group));
        return this.#isWanted(Number(group), subgroup === undefined ? undefined : Number(subgroup), tagOf(properties));
      },
      onObject: (object) => {
        const now = nowUs();
        const group = Number(object.group);
        // Duplicates from another connection are read too, since the unpacker numbers frames without a tag.
        const frames = unpacker.read(object, now);
        if (!this.#isHeard(frames, group, epoch, now)) return;
        if (this.#isSeen(place, object)) {
          this.records.duplicates += 1;
          return;
        }
        if (frames.length === 0) this.objectsUnknown += 1;
        for (const frame of frames) {
          const take = () => this.#onFrame(frame, group, now);
          if (!this.sequence || place !== 0) take();
          else this.sequence.push(group, take);
        }
        if (place === 0) this.#endFetched(group);
        this.#pass();
      },
      onStreamEnd: (group) => {
        this.openGroups.delete(Number(group));
        if (place === 0) this.sequence?.end(Number(group));
        this.#pass();
      },
    };
  }

  /**
   * Whether an object has arrived before.
   *
   * @param {number} place
   * @param {import("../moqt/streams.js").WholeObject} object
   * @returns {boolean}
   */
  #isSeen(place, { group, id }) {
    const key = `${place}:${group}:${id}`;
    if (this.seen.has(key)) return true;
    this.seen.add(key);
    if (this.seen.size > SEEN_MAX) this.seen.delete(this.seen.values().next().value ?? "");
    return false;
  }

  /**
   * Ends a group that was fetched completely, so that none of its streams ends. A later group shows that it is
   * complete.
   *
   * @param {number} group
   */
  #endFetched(group) {
    const { sequence } = this;
    if (!sequence || sequence.current === null || sequence.current >= group) return;
    if (!this.openGroups.has(sequence.current)) sequence.end(sequence.current);
  }

  /** Processes the objects that are next in sequence. */
  #pass() {
    for (const take of this.sequence?.poll() ?? []) take();
  }

  /**
   * @param {number} group
   * @param {number | undefined} subgroup
   * @param {import("./tag.js").FrameTag | undefined} tag
   */
  #isWanted(group, subgroup, tag) {
    if (!tag || !this.freshness || this.freshness.isWanted(nowUs(), group, subgroup, tag.kind, tag.availableUs)) return true;
    this.streamsRefused += 1;
    return false;
  }

  /**
   * @param {MediaFrame} frame
   * @param {number} group
   * @param {number} arrivedUs
   */
  #onFrame(frame, group, arrivedUs) {
    const { tag } = frame;
    if (tag.kind === "I" && this.#isBehind()) {
      this.jumps += 1;
      this.dropped.behind += this.inPlayer.size;
      this.#restart();
    }
    const record = this.records.add(frame, group, arrivedUs);
    if (this.isHidden) {
      this.dropped.hidden += 1;
      return;
    }
    if (!this.isPlaying && !this.video.problem) {
      this.isPlaying = true;
      this.handlers.onState("playing", "");
    }
    const number = this.nextNumber;
    this.nextNumber += 1;
    const now = nowUs();
    const fate = this.player.push(now, {
      number,
      kind: tag.kind,
      isDisposable: tag.isDisposable,
      group,
      references: tag.references,
      decodeUs: tag.decodeUs,
      presentationUs: tag.presentationUs,
      durationUs: tag.durationUs,
    });
    if (fate !== "waiting") this.dropped[fate] += 1;
    if (fate === "waiting") this.inPlayer.set(number, record);
    // A frame that is too late to be shown may still be needed by others.
    if (fate === "waiting" || (fate === "late" && !tag.isDisposable)) {
      this.video.push({ frame, group, onShown: () => this.records.onShown(record, nowUs()) });
    }
    this.#tick();
  }

  /**
   * Whether the frames of an object belong to the current publisher. If another publisher has replaced it, playing
   * restarts, and does not wait for the former one's groups, which nobody ends.
   *
   * @param {MediaFrame[]} frames
   * @param {number} group
   * @param {number} epoch of the plan that they belong to
   * @param {number} now
   */
  #isHeard(frames, group, epoch, now) {
    if (epoch < this.oldestEpoch) {
      if (this.isFormerLeft) this.framesOfFormer += frames.length;
      return false;
    }
    const [frame] = frames;
    if (!frame) return true;
    const { tag, isTagged } = frame;
    const isOther = this.#isOfAnother(frame, group, epoch);
    const sender = this.succession.judge(now, { ...tag, group }, isTagged, tag.kind === "I");
    if (sender === "before") {
      this.framesOfFormer += frames.length;
      return false;
    }
    if (isOther || sender === "another") {
      this.publishersFollowed += 1;
      this.seen.clear();
      this.records.succeed();
      const isOpen = this.openGroups.has(group);
      this.#restart();
      if (isOpen) this.openGroups.add(group);
    }
    return true;
  }

  /**
   * Whether an audio chunk belongs to a publisher that was replaced. Audio is judged separately.
   *
   * @param {MediaFrame[]} frames
   * @param {number} group
   * @param {number} epoch of the plan that they belong to
   */
  #isSoundOfFormer([frame], group, epoch) {
    if (epoch > this.newestEpoch.audio) this.soundSuccession = new Succession();
    return frame !== undefined && this.soundSuccession.judge(nowUs(), { ...frame.tag, group }, frame.isTagged, frame.tag.kind === "I") === "before";
  }

  /**
   * Whether a replacing connection delivers another publisher's frames. Then those of the former one are dropped.
   *
   * @param {MediaFrame} frame
   * @param {number} group
   * @param {number} epoch
   */
  #isOfAnother(frame, group, epoch) {
    const isFirst = epoch > this.newestEpoch.video;
    this.newestEpoch.video = Math.max(epoch, this.newestEpoch.video);
    if (!isFirst || epoch === this.oldestEpoch || this.records.continues(frame, group)) return false;
    this.oldestEpoch = epoch;
    this.isFormerLeft = true;
    this.succession = new Succession();
    return true;
  }

  /** Whether more waits than playing can soon catch up with. Players of the thesis never catch up. */
  #isBehind() {
    const { settings, target } = this.player;
    return settings.catchesUp && this.player.bufferedUs() > target.targetUs() + BEHIND_MAX_US;
  }

  /** Shows what is due, decodes what soon will be, and sets the next timer. */
  #tick() {
    clearTimeout(this.timer);
    const now = nowUs();
    const { player, video } = this;
    this.#followSound(now);
    let shownUs = -Infinity;
    for (let shown = player.poll(now); shown; shown = player.poll(now)) {
      shownUs = shown.frame.presentationUs;
      this.inPlayer.delete(shown.frame.number);
      if (shown.isDecodable) {
        video.show(shown.frame.presentationUs);
        this.freshness?.noteShown(shown.frame.group);
      } else {
        this.dropped.undecodable += 1;
      }
    }
    const first = player.buffer[0];
    const media = player.clock.mediaUs(now);
    // While the buffer is empty the clock stands still, but the buffer's last frames must still be decoded.
    video.feed(Math.max(media ?? -Infinity, shownUs, player.isPlaying || !first ? -Infinity : first.presentationUs));
    if (this.audio.isRunning) this.audio.follow(media, player.clock.rate / 1000);
    const next = player.pollTimeout(now);
    if (next !== undefined) this.timer = setTimeout(() => this.#tick(), Math.max(0, (next - now) / 1000));
  }

  /**
   * Adjusts the picture to the audio, if there is any.
   *
   * @param {number} now
   */
  #followSound(now) {
    const heard = this.audio.mediaUs();
    const seen = this.player.clock.mediaUs(now);
    if (heard === null || seen === null || Math.abs(heard - seen) < IN_SYNC_US) return;
    // Larger differences are corrected by a jump of the audio.
    if (Math.abs(heard - seen) < 80_000) this.player.clock.steer(now, Math.round(heard));
  }

  /** Returns the current figures. */
  figures() {
    const now = nowUs();
    const lately = this.records.lately(now, 60_000_000);
    const { receiver, video, audio, records, player } = this;
    const ageUs = records.ageUs(now);
    return {
      lately,
      latencyNow: records.lastLatencyUs === undefined ? null : records.lastLatencyUs / 1e6,
      ageNow: ageUs === null ? null : ageUs / 1e6,
      isTold: records.isTold,
      buffered: player.bufferedUs() / 1e6,
      target: player.target.targetUs() / 1e6,
      rate: player.clock.rate / 1000,
      byKind: records.byKind,
      dropped: this.dropped,
      jumps: this.jumps,
      duplicates: records.duplicates,
      streamsRefused: this.streamsRefused,
      video: video.counters,
      isBaseOnly: video.isBaseOnly,
      audio: { ...audio.counters, problem: audio.problem },
      inSync: this.#syncUs(now),
      connection: { ...receiver.counters, ...(receiver.session?.counters ?? {}) },
      implementation: receiver.session?.peer?.implementation,
      strategy: this.strategy,
      plan: this.plan,
    };
  }

  /** @param {number} now */
  #syncUs(now) {
    const heard = this.audio.mediaUs();
    const seen = this.player.clock.mediaUs(now);
    return heard === null || seen === null ? null : (seen - heard) / 1e6;
  }

  /** Returns the run, as far as its frames are kept, in the form of `weir live play`. */
  export() {
    const { plan } = this;
    return this.records.export(nowUs(), {
      schema: REPORT_SCHEMA,
      player: "browser",
      relay: this.receiver.main ? shownRelay(this.receiver.main.target.relay) : null,
      strategy: plan ? (plan.strategy ?? null) : this.strategy,
      tracks: plan ? plan.video.map(({ name, packaging, codec }) => ({ name, packaging, codec })) : null,
      buffer: String(this.settings.buffer),
      catalogs_followed: this.catalogsFollowed,
      publishers_followed: this.publishersFollowed,
      frames_of_former: this.framesOfFormer,
      streams_refused: this.streamsRefused,
      objects_unknown: this.objectsUnknown,
    });
  }
}
