// The set-up of audio, with a mock of the audio output.

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { AudioOutput } from "../player/audio.js";

/** @type {PlayedContext[]} */
let contexts = [];
/** Loads the module of the audio thread.
 * @type {() => Promise<void>} */
let load = async () => {};

class PlayedContext {
  constructor() {
    this.state = "suspended";
    this.audioWorklet = { addModule: () => load() };
    /** @type {{ value: number } | undefined} */
    this.volume = undefined;
    contexts.push(this);
  }

  createGain() {
    this.volume = { value: 1 };
    return { gain: this.volume, connect: () => {} };
  }

  async resume() {
    this.state = "running";
  }

  async close() {
    this.state = "closed";
  }
}

Object.assign(globalThis, {
  AudioContext: PlayedContext,
  AudioWorkletNode: class {
    port = {};

    /** @param {unknown} to */
    connect(to) {
      return to;
    }
  },
});

/** Makes the module load only when the returned function is called. */
function slowly() {
  /** @type {() => void} */
  let loaded = () => {};
  /** @type {Promise<void>} */
  const whole = new Promise((resolve) => {
    loaded = resolve;
  });
  load = () => whole;
  return () => loaded();
}

beforeEach(() => {
  contexts = [];
  load = async () => {};
});

const states = () => contexts.map(({ state }) => state);

test("sound begins at the volume that was set while it was being set up, and once, however often it was asked for", async () => {
  const loaded = slowly();
  const output = new AudioOutput();
  const tries = [output.enable(), output.enable()];
  output.setVolume(0);
  loaded();
  await Promise.all(tries);
  assert.deepEqual([states(), contexts[0].volume?.value], [["running"], 0]);
  output.setVolume(0.5);
  await output.enable();
  assert.deepEqual([states(), contexts[0].volume?.value], [["running"], 0.5]);
  output.close();
  assert.deepEqual(states(), ["closed"]);
});

test("of sound that cannot be set up nothing is left open, and it can be tried anew", async () => {
  load = () => Promise.reject(new Error("no module"));
  const output = new AudioOutput();
  await assert.rejects(output.enable(), /no module/);
  assert.deepEqual(states(), ["closed"]);
  load = async () => {};
  await output.enable();
  assert.deepEqual(states(), ["closed", "running"]);
});

test("who leaves while sound is being set up hears none", async () => {
  const loaded = slowly();
  const output = new AudioOutput();
  const enabled = output.enable();
  output.close();
  loaded();
  await enabled;
  assert.deepEqual(states(), ["closed"]);
});
