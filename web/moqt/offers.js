/**
 * Tracks of a namespace that this client has announced. The relay subscribes to those that it wants, each again when it
 * wants it again.
 */

import { DoneCode, RequestCode } from "./error.js";
import { Publication } from "./publication.js";
import { ignore } from "./streams.js";

/**
 * @typedef {import("./name.js").FullTrackName} FullTrackName
 * @typedef {import("./streams.js").RequestStream} RequestStream
 */

/** The tracks that a session serves. */
export class Offers {
  /** @param {WebTransport} transport */
  constructor(transport) {
    this.transport = transport;
    /** @type {Map<string, Publication>} */
    this.tracks = new Map();
    /** Tracks with a subscription.
     * @type {Set<Publication>} */
    this.subscribed = new Set();
  }

  /**
   * Adds a track. It wants no objects until the relay subscribes.
   *
   * @param {FullTrackName} name
   * @returns {Publication}
   */
  add(name) {
    const publication = new Publication(this.transport, BigInt(this.tracks.size), async () => {});
    publication.isForwarding = false;
    this.tracks.set(keyOf(name), publication);
    return publication;
  }

  /**
   * Answers a request of the relay, and follows it until the relay ends it.
   *
   * @param {RequestStream} stream
   */
  async serve(stream) {
    const request = await stream.next();
    if (!request) return;
    if (request.type !== "SUBSCRIBE" || this.tracks.size === 0) {
      return refuse(stream, RequestCode.NOT_SUPPORTED, "this client serves no such requests");
    }
    const publication = this.tracks.get(keyOf(request));
    if (!publication || publication.isOver) return refuse(stream, RequestCode.DOES_NOT_EXIST, "there is no such track");
    if (this.subscribed.has(publication)) {
      return refuse(stream, RequestCode.EXCESSIVE_LOAD, "this client serves one subscription of a track");
    }
    this.subscribed.add(publication);
    try {
      await this.#follow(stream, publication, request.parameters);
    } finally {
      this.subscribed.delete(publication);
      publication.finish = async () => {};
      publication.update({ forward: false });
    }
  }

  /**
   * @param {RequestStream} stream
   * @param {Publication} publication
   * @param {import("./parameter.js").Parameters} parameters of SUBSCRIBE
   */
  async #follow(stream, publication, parameters) {
    const { largest: largestObject, trackAlias } = publication;
    await stream.send({
      type: "SUBSCRIBE_OK", trackAlias, parameters: largestObject ? { largestObject } : {}, properties: [],
    });
    publication.streams = 0;
    publication.finish = async (streams) => {
      await stream.send({ type: "PUBLISH_DONE", code: BigInt(DoneCode.TRACK_ENDED), streamCount: BigInt(streams), reason: "" });
      await stream.writer.close();
    };
    publication.update({ forward: parameters.forward ?? true });
    // The relay ends a subscription with STOP_SENDING or a reset. A FIN says only that no update follows.
    const stopped = stream.writer.closed.then(() => undefined, ignore);
    for (;;) {
      const next = await Promise.race([stream.next(), stopped]);
      if (!next) return await stopped;
      if (next.type !== "REQUEST_UPDATE") continue;
      await stream.send({ type: "REQUEST_OK", parameters: {}, properties: [] });
      publication.update(next.parameters);
    }
  }
}

/**
 * @param {RequestStream} stream
 * @param {number} code
 * @param {string} reason
 */
async function refuse(stream, code, reason) {
  await stream.send({ type: "REQUEST_ERROR", code: BigInt(code), reason });
  await stream.writer.close();
}

/**
 * Returns a text that is the same for equal names only.
 *
 * @param {FullTrackName} name
 */
function keyOf({ namespace, trackName }) {
  return [...namespace, trackName].map((field) => field.join(" ")).join("/");
}
