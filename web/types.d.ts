// Types that TypeScript's library lacks: the global scope of an audio thread.

declare const sampleRate: number;
declare const currentTime: number;
declare abstract class AudioWorkletProcessor {
  readonly port: MessagePort;
}
declare function registerProcessor(name: string, processor: new () => AudioWorkletProcessor): void;

// Chromium also has it on pages.
declare class MediaStreamTrackProcessor<T extends VideoFrame | AudioData = any> {
  constructor(init: { track: MediaStreamTrack });
  readonly readable: ReadableStream<T>;
}
