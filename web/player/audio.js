/**
 * Audio: decodes it, plays it on the audio thread, and is the master clock while it plays.
 *
 * Browsers play no audio before the user has interacted with the page. Until then there is none, and the picture
 * follows the clock of the machine.
 */

/** The largest difference from the intended position, in microseconds. A larger one is audible and causes a jump. */
const JUMP_US = 80_000;
/** The largest age of a report of the audio thread, in milliseconds. */
const REPORT_MAX_MS = 500;

/** The decoder and the output of audio. */
export class AudioOutput {
  constructor() {
    /** Why there is no sound, in plain words.
     * @type {string | undefined} */
    this.problem = undefined;
    /** @type {AudioContext | undefined} */
    this.context = undefined;
    /** @type {AudioWorkletNode | undefined} */
    this.node = undefined;
    /** @type {GainNode | undefined} */
    this.gain = undefined;
    /** @type {AudioDecoder | undefined} */
    this.decoder = undefined;
    /** @type {import("./catalog.js").TrackPlan | undefined} */
    this.plan = undefined;
    /** @type {{ mediaUs: number, at: number } | undefined} */
    this.report = undefined;
    this.isPlaying = false;
    this.isClosed = false;
    this.volume = 1;
    /** While it is being set up.
     * @type {Promise<void> | undefined} */
    this.settingUp = undefined;
    this.rate = 1;
    this.counters = { chunks: 0, decoded: 0, errors: 0, silentSamples: 0 };
  }

  /**
   * Changes to another stream, or to none.
   *
   * @param {import("./catalog.js").TrackPlan | undefined} plan
   */
  async setPlan(plan) {
    this.plan = undefined;
    this.#closeDecoder();
    this.node?.port.postMessage({ clear: true, mediaUs: null });
    this.isPlaying = false;
    this.problem = undefined;
    if (!plan) return;
    if (!("AudioDecoder" in globalThis)) {
      this.problem = "This browser cannot decode audio with WebCodecs.";
      return;
    }
    const support = await AudioDecoder.isConfigSupported(config(plan)).catch(() => undefined);
    if (support?.supported) this.plan = plan;
    else this.problem = `This browser has no decoder for the stream's sound (${plan.codec}).`;
  }

  /** Enables audio at the current volume. Works only after the user has interacted with the page. */
  async enable() {
    // Another call during the set-up waits for the same result. After a failure it tries again.
    this.settingUp ??= this.#setUp().finally(() => {
      this.settingUp = undefined;
    });
    await this.settingUp;
    await this.context?.resume();
  }

  async #setUp() {
    if (this.context || this.isClosed) return;
    const context = new AudioContext({ latencyHint: "interactive" });
    try {
      await context.audioWorklet.addModule(new URL("./audio-worklet.js", import.meta.url));
    } catch (error) {
      context.close().catch(() => {});
      throw error;
    }
    if (this.isClosed) {
      context.close().catch(() => {});
      return;
    }
    this.context = context;
    this.node = new AudioWorkletNode(context, "sound-player", { outputChannelCount: [2] });
    this.node.port.onmessage = ({ data }) => {
      this.report = { mediaUs: data.mediaUs, at: performance.now() };
      this.counters.silentSamples += data.silent;
    };
    this.gain = context.createGain();
    this.gain.gain.value = this.volume;
    this.node.connect(this.gain).connect(context.destination);
  }

  /** @param {number} volume 0 to 1, also for later set-ups */
  setVolume(volume) {
    this.volume = volume;
    if (this.gain) this.gain.gain.value = volume;
  }

  /** @returns {boolean} whether audio plays and can be the clock */
  get isRunning() {
    return this.plan !== undefined && this.context?.state === "running";
  }

  /**
   * Takes a chunk of audio.
   *
   * @param {import("./packaging.js").MediaFrame} frame
   */
  push(frame) {
    if (!this.plan || !this.isRunning) return;
    this.counters.chunks += 1;
    if (!this.decoder || this.decoder.state !== "configured") this.#openDecoder(this.plan);
    const { tag, data } = frame;
    try {
      this.decoder?.decode(new EncodedAudioChunk({ type: "key", timestamp: tag.presentationUs, duration: tag.durationUs, data }));
    } catch (error) {
      this.#onError(error);
    }
  }

  /**
   * Follows the picture, which is at this media time or paused.
   *
   * @param {number | null} mediaUs
   * @param {number} rate
   */
  follow(mediaUs, rate) {
    if (!this.node) return;
    if (mediaUs === null) {
      if (this.isPlaying) this.node.port.postMessage({ mediaUs: null });
      this.isPlaying = false;
      return;
    }
    const own = this.mediaUs();
    if (!this.isPlaying || own === null || Math.abs(own - mediaUs) > JUMP_US) {
      this.node.port.postMessage({ mediaUs, rate });
      this.report = { mediaUs, at: performance.now() };
      this.isPlaying = true;
    } else if (rate !== this.rate) {
      this.node.port.postMessage({ rate });
    }
    this.rate = rate;
  }

  /** @returns {number | null} the media time that is audible, if audio plays */
  mediaUs() {
    const { report, context } = this;
    if (!this.isPlaying || !this.isRunning || !report || !context) return null;
    const age = performance.now() - report.at;
    if (age > REPORT_MAX_MS) return null;
    return report.mediaUs + age * 1000 * this.rate - (context.outputLatency || 0) * 1e6;
  }

  /** Frees everything, including a set-up in progress, and ends audio. */
  close() {
    this.isClosed = true;
    this.#closeDecoder();
    this.context?.close().catch(() => {});
    this.context = undefined;
    this.node = undefined;
  }

  /** @param {import("./catalog.js").TrackPlan} plan */
  #openDecoder(plan) {
    this.#closeDecoder();
    this.decoder = new AudioDecoder({
      output: (data) => this.#onSound(data),
      error: (error) => this.#onError(error),
    });
    this.decoder.configure(config(plan));
  }

  #closeDecoder() {
    if (this.decoder && this.decoder.state !== "closed") this.decoder.close();
    this.decoder = undefined;
  }

  /** @param {AudioData} data */
  #onSound(data) {
    this.counters.decoded += 1;
    const channels = [];
    for (let plane = 0; plane < data.numberOfChannels; plane++) {
      const samples = new Float32Array(data.numberOfFrames);
      data.copyTo(samples, { planeIndex: plane, format: "f32-planar" });
      channels.push(samples);
    }
    const chunk = { mediaUs: data.timestamp, sampleRate: data.sampleRate, channels };
    data.close();
    this.node?.port.postMessage({ chunk }, channels.map((samples) => samples.buffer));
  }

  /** @param {unknown} error */
  #onError(error) {
    this.counters.errors += 1;
    console.warn("the audio decoder failed and is restarted", error);
    this.#closeDecoder();
  }
}

/**
 * @param {import("./catalog.js").TrackPlan} plan
 * @returns {AudioDecoderConfig}
 */
function config({ codec, sampleRate, channels, description }) {
  return {
    codec,
    sampleRate: sampleRate ?? 48_000,
    numberOfChannels: channels ?? 2,
    ...(description && codec.startsWith("mp4a") ? { description: Uint8Array.from(description) } : {}),
  };
}
