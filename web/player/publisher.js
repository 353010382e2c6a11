/**
 * Publishes a camera and a microphone: encodes with WebCodecs, and packages as LOC with a catalog. It delivers like the
 * strategy `weir`: keyframes on a stream of their own, and the rest of a group reset at the next keyframe. On the way
 * to the relay, the browser decides whether a keyframe is sent first (Chromium serves its streams in turns); from there
 * on the relay does. Other relays get each group on one stream, as not all of them forward a second one.
 */

import { utf8 } from "../moqt/cursor.js";
import { Refused, RequestCode, ResetCode } from "../moqt/error.js";
import { namespaceOf } from "../moqt/name.js";
import { Session } from "../moqt/session.js";
import { streamError } from "../moqt/streams.js";
import { CATALOG_TRACK } from "./catalog.js";
import { nowUs } from "./now.js";
import { named } from "./relays.js";
import { FRAME_PROPERTY, writeTag } from "./tag.js";

/** Media time between two keyframes, in microseconds. */
const GROUP_US = 1_000_000;
/** Frames that may wait for the encoder. Further ones are dropped. */
const ENCODING_MAX = 4;
/** The time for closing the session, in milliseconds. */
const LEAVE_MS = 2000;
/** The time from the last frame for a relay that goes away until its session is closed, in milliseconds. */
const DEPART_MS = 300;
/** How often the catalog is repeated for late subscribers, in milliseconds. */
const CATALOG_MS = 10_000;
const CATALOG_PRIORITY = 8;
const AUDIO_PRIORITY = 16;
const KEYFRAME_PRIORITY = 32;
const PRIORITY = 128;
const LOC_TIMESCALE = 0x08n;
const LOC_VIDEO_CONFIG = 0x0dn;
const LOC_TIMESTAMP = 0x10n;
/** Codecs in order of preference. */
const VIDEO_CODECS = ["avc1.42e01f", "vp09.00.31.08", "vp8"];

/**
 * @typedef {object} Sources readers of raw frames and audio
 * @property {ReadableStreamDefaultReader<VideoFrame>} video
 * @property {ReadableStreamDefaultReader<AudioData>} [audio]
 *
 * @typedef {object} Quality
 * @property {number} width
 * @property {number} height
 * @property {number} bitrate bits per second
 */

/** A publisher of one stream. */
export class Publisher {
  /**
   * @param {import("./reception.js").Target} target
   * @param {Quality} quality
   * @param {Sources} sources
   */
  constructor(target, quality, sources) {
    this.target = target;
    this.quality = quality;
    this.sources = sources;
    this.namespace = namespaceOf(target.namespace);
    /** @type {Session | undefined} */
    this.session = undefined;
    this.isStopped = false;
    /** @type {() => void} */
    this.onStop = () => {};
    /** Whether {@link stop} was called.
     * @type {Promise<undefined>} */
    this.stopped = new Promise((resolve) => {
      this.onStop = () => resolve(undefined);
    });
    /** Whether the relay has accepted the tracks. */
    this.isAccepted = false;
    /** Why the browser could not continue.
     * @type {string | undefined} */
    this.problem = undefined;
    /** The Group ID of each track's first group: the time of day in milliseconds. So a publisher that restarts
     * continues with higher groups, and relays and players that remember the earlier ones accept them. */
    this.firstGroup = 0n;
    /** The group of pictures that is being sent. */
    this.group = -1n;
    this.object = 0n;
    this.references = 0;
    this.keyUs = -Infinity;
    this.mustKey = true;
    /** Whether the relay has sent GOAWAY and another one can be used: it gets no keyframe any more. */
    this.isLeaving = false;
    /** The relay that the GOAWAY named, if it named one.
     * @type {string | undefined} */
    this.successor = undefined;
    /** Called when the last group for a relay that goes away is complete; undefined before it has to go.
     * @type {(() => void) | undefined} */
    this.onLeft = undefined;
    this.hasLeft = false;
    /** @type {Uint8Array | undefined} */
    this.description = undefined;
    this.counters = { frames: 0, keyframes: 0, dropped: 0, bytes: 0, streamsReset: 0, audioChunks: 0 };
    /** The times of capture of the frames in the encoder, by timestamp.
     * @type {Map<number, number>} */
    this.captured = new Map();
    /** @type {ReturnType<typeof setInterval> | undefined} */
    this.catalogTimer = undefined;
    /** @type {(() => void) | undefined} */
    this.publishCatalog = undefined;
  }

  /**
   * Connects and publishes until {@link stop} or the end of the session. In any case the session and the sources are
   * closed.
   *
   * @param {() => void} [onAccepted] called when the relay has accepted the tracks
   * @returns {Promise<string>} why it ended; empty after {@link stop}, or if the source ended
   */
  async run(onAccepted = () => {}) {
    try {
      return await this.#run(onAccepted);
    } catch (error) {
      // An error that {@link stop} caused is not a failure.
      if (this.isStopped && !this.problem) return "";
      throw error;
    } finally {
      clearInterval(this.catalogTimer);
      this.publishCatalog = undefined;
      this.stop();
      this.session?.close();
    }
  }

  /**
   * @param {() => void} onAccepted
   * @returns {Promise<string>}
   */
  async #run(onAccepted) {
    const { relay, certificateHashes, token, protocols } = this.target;
    const codec = await this.#videoCodec();
    if (this.isStopped) return "";
    const connecting = Session.connect(relay, { certificateHashes, ...(token ? { token } : {}), ...(protocols ? { protocols } : {}) });
    const session = await Promise.race([connecting, this.stopped]);
    if (!session) {
      // Nobody waits for a relay that cannot be reached.
      connecting.then((late) => late.close(), () => {});
      return "";
    }
    this.session = session;
    if (this.isStopped) return "";
    const { video, audio, catalog } = await this.#offer(session);
    this.isAccepted = true;
    session.onGoAway = ({ newSessionUri }) => {
      this.successor = named(newSessionUri);
      this.isLeaving = this.successor !== undefined || (this.target.relays?.length ?? 1) > 1;
    };
    this.firstGroup = BigInt(Math.floor(nowUs() / 1000));
    this.group = this.firstGroup - 1n;
    onAccepted();
    this.#offerCatalog(catalog, codec);
    const isWeir = session.peer?.implementation?.startsWith("weir/") ?? false;
    const work = [this.#publishVideo(video, codec, isWeir)];
    if (audio && this.sources.audio) work.push(this.#publishAudio(audio, this.sources.audio));
    const ended = Promise.all(work).then(() => {
      if (session.isClosed) return session.closed;
      return !this.isStopped && video.isOver ? "The relay ended the stream." : "";
    });
    /** @type {Promise<string>} */
    const left = new Promise((resolve) => {
      this.onLeft = () => resolve("The relay is going away.");
    });
    const reason = await Promise.race([session.closed, ended, left]);
    // The tracks go on at the next relay, so they do not end here.
    if (this.hasLeft) await Promise.race([session.closed, this.stopped, new Promise((resolve) => setTimeout(resolve, DEPART_MS))]);
    else await this.#leave([video, catalog, ...(audio ? [audio] : [])]);
    return this.problem ?? reason;
  }

  /**
   * Ends all tracks. Does not wait for a relay that cannot be reached.
   *
   * @param {import("../moqt/publication.js").Publication[]} publications
   */
  async #leave(publications) {
    const told = Promise.all(publications.map((publication) => publication.done())).catch(() => {});
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    const late = new Promise((resolve) => {
      timer = setTimeout(resolve, LEAVE_MS);
    });
    await Promise.race([told, late]);
    clearTimeout(timer);
  }

  /**
   * Offers all tracks to the relay, or the namespace if the relay does not support PUBLISH.
   *
   * @param {Session} session
   */
  async #offer(session) {
    const track = (/** @type {string} */ name) => ({ namespace: this.namespace, trackName: utf8(name) });
    try {
      const [video, audio, catalog] = await Promise.all([
        session.publish(track("video"), 0n, []),
        this.sources.audio ? session.publish(track("audio"), 1n, []) : undefined,
        session.publish(track(CATALOG_TRACK), 2n, []),
      ]);
      return { video, audio, catalog };
    } catch (error) {
      if (error instanceof Refused && error.code === RequestCode.NOT_SUPPORTED) return await this.#announce(session);
      if (error instanceof Refused) throw error;
      throw new Error("The connection was lost before the relay accepted the stream.", { cause: error });
    }
  }

  /** @param {Session} session */
  async #announce(session) {
    const track = (/** @type {string} */ name) => session.offers.add({ namespace: this.namespace, trackName: utf8(name) });
    const offered = { video: track("video"), audio: this.sources.audio && track("audio"), catalog: track(CATALOG_TRACK) };
    await session.publishNamespace(this.namespace);
    return offered;
  }

  /**
   * Changes to another quality, with a new catalog and a keyframe.
   *
   * @param {Quality} quality
   */
  change(quality) {
    this.quality = quality;
    this.mustKey = true;
    this.publishCatalog?.();
  }

  /** Ends the stream. */
  stop() {
    this.isStopped = true;
    this.onStop();
    this.sources.video.cancel().catch(() => {});
    this.sources.audio?.cancel().catch(() => {});
    // Nobody waits for a relay that has not answered.
    if (!this.isAccepted) this.session?.close();
  }

  /** @returns {Promise<string>} the first codec that the browser can encode */
  async #videoCodec() {
    if (!("VideoEncoder" in globalThis)) throw new Error("This browser cannot encode video with WebCodecs.");
    for (const codec of VIDEO_CODECS) {
      const support = await VideoEncoder.isConfigSupported(this.#videoConfig(codec)).catch(() => undefined);
      if (support?.supported) return codec;
    }
    throw new Error("This browser has no encoder for H.264, VP9 or VP8.");
  }

  /**
   * @param {string} codec
   * @returns {VideoEncoderConfig}
   */
  #videoConfig(codec) {
    const { width, height, bitrate } = this.quality;
    return {
      codec,
      width,
      height,
      bitrate,
      framerate: 30,
      latencyMode: "realtime",
      ...(codec.startsWith("avc") ? { avc: { format: "avc" } } : {}),
    };
  }

  /**
   * @param {import("../moqt/publication.js").Publication} publication
   * @param {string} codec
   */
  #offerCatalog(publication, codec) {
    const common = { packaging: "loc", isLive: true, renderGroup: 1, timescale: 1_000_000 };
    const catalog = () => JSON.stringify({
      version: "draft-01",
      weirStrategy: "weir",
      tracks: [
        { ...common, name: "video", role: "video", codec, ...this.quality },
        ...(this.sources.audio
          ? [{ ...common, name: "audio", role: "audio", codec: "opus", samplerate: 48_000, channelConfig: "2" }]
          : []),
      ],
    });
    let group = this.firstGroup;
    const publish = () => {
      if (publication.isOver || !publication.isForwarding) return;
      const stream = publication.open(group, 0n, CATALOG_PRIORITY);
      stream.write(0n, [], utf8(catalog()));
      stream.close();
      group += 1n;
    };
    publish();
    publication.onForward = publish;
    this.publishCatalog = publish;
    this.catalogTimer = setInterval(publish, CATALOG_MS);
  }

  /**
   * @param {import("../moqt/publication.js").Publication} publication
   * @param {string} codec
   * @param {boolean} splitsGroups whether keyframes have streams of their own
   */
  async #publishVideo(publication, codec, splitsGroups) {
    /** @type {import("../moqt/publication.js").Subgroup | undefined} */
    let others;
    // The relay has paused the track: the rest of the group is not sent, and a keyframe follows the pause.
    let isCut = !publication.isForwarding;
    publication.onForward = () => {
      isCut = true;
      this.mustKey = true;
      others?.reset(streamError(ResetCode.CANCELLED));
      others = undefined;
    };
    const encoder = new VideoEncoder({
      output: (chunk, metadata) => {
        if (!publication.isForwarding || (isCut && chunk.type !== "key")) return;
        isCut = false;
        if (chunk.type === "key" && this.isLeaving && !this.hasLeft) {
          this.hasLeft = true;
          others?.close();
          others = undefined;
          this.onLeft?.();
        }
        if (this.hasLeft) return;
        if (chunk.type === "key") {
          this.group += 1n;
          this.object = 0n;
          this.references = 0;
          if (!splitsGroups) {
            others?.close();
          } else if (others) {
            if (others.waitingBytes > 0) this.counters.streamsReset += 1;
            // The relay may have all of it, but not the subscribers behind slow links.
            others.reset(streamError(ResetCode.DELIVERY_TIMEOUT));
          }
          others = undefined;
        }
        if (this.group < this.firstGroup || publication.isOver) return;
        const stream = chunk.type === "key"
          ? publication.open(this.group, 0n, KEYFRAME_PRIORITY)
          : (others ??= publication.open(this.group, 1n, PRIORITY));
        this.#write(stream, chunk, metadata);
        if (!splitsGroups) others = stream;
        else if (chunk.type === "key") stream.close();
      },
      error: (error) => {
        this.problem = `The browser's video encoder failed: ${error.message}`;
        this.stop();
      },
    });
    let offsetUs;
    encoder.configure(this.#videoConfig(codec));
    for (;;) {
      const { value: frame, done } = await this.sources.video.read();
      if (done || this.isStopped || publication.isOver) {
        frame?.close();
        break;
      }
      offsetUs ??= nowUs() - frame.timestamp;
      if (!publication.isForwarding) {
        frame.close();
        continue;
      }
      if (encoder.state !== "configured" || encoder.encodeQueueSize > ENCODING_MAX) {
        this.counters.dropped += 1;
        frame.close();
        continue;
      }
      const timestamp = frame.timestamp + offsetUs;
      const isKey = this.mustKey || timestamp - this.keyUs >= GROUP_US;
      if (isKey) {
        this.keyUs = timestamp;
        if (this.mustKey) encoder.configure(this.#videoConfig(codec));
        this.mustKey = false;
      }
      const timed = new VideoFrame(frame, { timestamp });
      frame.close();
      encoder.encode(timed, { keyFrame: isKey });
      timed.close();
    }
    if (encoder.state === "configured") await encoder.flush().catch(() => {});
    if (encoder.state !== "closed") encoder.close();
    others?.close();
    // Audio alone is not a stream.
    this.sources.audio?.cancel().catch(() => {});
  }

  /**
   * @param {import("../moqt/publication.js").Subgroup} stream
   * @param {EncodedVideoChunk} chunk
   * @param {EncodedVideoChunkMetadata | undefined} metadata
   */
  #write(stream, chunk, metadata) {
    const isKey = chunk.type === "key";
    const payload = new Uint8Array(chunk.byteLength);
    chunk.copyTo(payload);
    const given = metadata?.decoderConfig?.description;
    if (given) this.description = bytesOf(given);
    const tag = writeTag({
      kind: isKey ? "I" : "P",
      isDisposable: false,
      references: this.references,
      availableUs: nowUs(),
      decodeUs: chunk.timestamp,
      presentationUs: chunk.timestamp,
      durationUs: chunk.duration ?? 33_333,
      number: this.counters.frames,
    });
    stream.write(this.object, [
      { type: LOC_TIMESCALE, int: 1_000_000n },
      ...(isKey && this.description ? [{ type: LOC_VIDEO_CONFIG, bytes: this.description }] : []),
      { type: LOC_TIMESTAMP, int: BigInt(Math.max(0, chunk.timestamp)) },
      { type: FRAME_PROPERTY, bytes: tag },
    ], payload);
    this.object += 1n;
    this.references += 1;
    this.counters.frames += 1;
    this.counters.keyframes += isKey ? 1 : 0;
    this.counters.bytes += payload.length;
  }

  /**
   * @param {import("../moqt/publication.js").Publication} publication
   * @param {ReadableStreamDefaultReader<AudioData>} source
   */
  async #publishAudio(publication, source) {
    let group = this.firstGroup - 1n;
    let object = 0n;
    let beganUs = -Infinity;
    /** @type {import("../moqt/publication.js").Subgroup | undefined} */
    let stream;
    const encoder = new AudioEncoder({
      output: (chunk) => {
        if (publication.isOver || this.hasLeft) return;
        if (!publication.isForwarding) {
          stream?.reset(streamError(ResetCode.CANCELLED));
          stream = undefined;
          return;
        }
        if (!stream || chunk.timestamp - beganUs >= GROUP_US) {
          stream?.close();
          group += 1n;
          object = 0n;
          beganUs = chunk.timestamp;
          stream = publication.open(group, 0n, AUDIO_PRIORITY);
        }
        const payload = new Uint8Array(chunk.byteLength);
        chunk.copyTo(payload);
        const tag = writeTag({
          kind: "I",
          isDisposable: false,
          references: 0,
          availableUs: nowUs(),
          decodeUs: chunk.timestamp,
          presentationUs: chunk.timestamp,
          durationUs: chunk.duration ?? 20_000,
          number: this.counters.audioChunks,
        });
        stream.write(object, [
          { type: LOC_TIMESCALE, int: 1_000_000n },
          { type: LOC_TIMESTAMP, int: BigInt(Math.max(0, chunk.timestamp)) },
          { type: FRAME_PROPERTY, bytes: tag },
        ], payload);
        object += 1n;
        this.counters.audioChunks += 1;
      },
      error: (error) => console.warn("the audio encoder failed", error),
    });
    let offsetUs;
    for (;;) {
      const { value: data, done } = await source.read();
      if (done || this.isStopped) {
        data?.close();
        break;
      }
      offsetUs ??= nowUs() - data.timestamp;
      if (encoder.state === "unconfigured") {
        encoder.configure({
          codec: "opus",
          sampleRate: data.sampleRate,
          numberOfChannels: Math.min(2, data.numberOfChannels),
          bitrate: 64_000,
        });
      }
      if (encoder.state === "configured") encoder.encode(shifted(data, offsetUs));
      data.close();
    }
    if (encoder.state !== "closed") encoder.close();
    stream?.close();
  }
}

/**
 * Returns the same audio at another time.
 *
 * @param {AudioData} data
 * @param {number} offsetUs
 * @returns {AudioData}
 */
function shifted(data, offsetUs) {
  const { numberOfChannels, numberOfFrames, sampleRate } = data;
  const samples = new Float32Array(numberOfChannels * numberOfFrames);
  for (let plane = 0; plane < numberOfChannels; plane++) {
    data.copyTo(samples.subarray(plane * numberOfFrames, (plane + 1) * numberOfFrames), { planeIndex: plane, format: "f32-planar" });
  }
  return new AudioData({ format: "f32-planar", sampleRate, numberOfFrames, numberOfChannels, timestamp: data.timestamp + offsetUs, data: samples });
}

/** @param {AllowSharedBufferSource} source */
function bytesOf(source) {
  return ArrayBuffer.isView(source)
    ? new Uint8Array(source.buffer, source.byteOffset, source.byteLength).slice()
    : new Uint8Array(source).slice();
}
