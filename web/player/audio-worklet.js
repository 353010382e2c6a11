/**
 * Plays audio chunks at the given media time, and reports its position.
 *
 * A module of its own, since it runs on the audio thread.
 */

/** Chunks that may wait. Beyond this, the oldest is dropped. */
const CHUNKS_MAX = 512;
/** How often it reports its position, in blocks of 128 samples. */
const REPORT_BLOCKS = 8;

/** @typedef {{ mediaUs: number, sampleRate: number, channels: Float32Array[] }} Chunk */

class SoundPlayer extends AudioWorkletProcessor {
  constructor() {
    super();
    /** In order of media time.
     * @type {Chunk[]} */
    this.chunks = [];
    /** Media time of the next sample.
     * @type {number | null} */
    this.mediaUs = null;
    this.rate = 1;
    this.blocks = 0;
    this.silent = 0;
    this.port.onmessage = ({ data }) => this.take(data);
  }

  /** @param {any} message */
  take(message) {
    if (message.chunk) {
      const { chunks } = this;
      let place = chunks.length;
      while (place > 0 && chunks[place - 1].mediaUs > message.chunk.mediaUs) place -= 1;
      chunks.splice(place, 0, message.chunk);
      if (chunks.length > CHUNKS_MAX) chunks.shift();
    }
    if ("mediaUs" in message) this.mediaUs = message.mediaUs;
    if ("rate" in message) this.rate = message.rate;
    if (message.clear) this.chunks = [];
  }

  /**
   * @param {Float32Array[][]} _inputs
   * @param {Float32Array[][]} outputs
   */
  process(_inputs, outputs) {
    const out = outputs[0];
    if (this.mediaUs === null) return true;
    const step = (this.rate * 1e6) / sampleRate;
    for (let i = 0; i < out[0].length; i++) {
      this.write(out, i);
      this.mediaUs += step;
    }
    this.blocks += 1;
    if (this.blocks % REPORT_BLOCKS === 0) {
      this.port.postMessage({ mediaUs: this.mediaUs, contextTime: currentTime, silent: this.silent, waiting: this.chunks.length });
      this.silent = 0;
    }
    return true;
  }

  /**
   * Writes one sample of each channel, or silence.
   *
   * @param {Float32Array[]} out
   * @param {number} at
   */
  write(out, at) {
    const now = this.mediaUs ?? 0;
    while (this.chunks.length > 0) {
      const { mediaUs, sampleRate: rate, channels } = this.chunks[0];
      const place = ((now - mediaUs) * rate) / 1e6;
      if (place < 0) break;
      if (place >= channels[0].length) {
        this.chunks.shift();
        continue;
      }
      const index = Math.floor(place);
      const part = place - index;
      out.forEach((samples, channel) => {
        const source = channels[Math.min(channel, channels.length - 1)];
        const next = index + 1 < source.length ? source[index + 1] : source[index];
        samples[at] = source[index] + (next - source[index]) * part;
      });
      return;
    }
    this.silent += 1;
  }
}

registerProcessor("sound-player", SoundPlayer);
