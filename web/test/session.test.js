// A session with a scripted relay, in each draft.

import assert from "node:assert/strict";
import { test } from "node:test";

import { DRAFTS, hasJoiningFetches, protocolOf } from "../moqt/draft.js";
import { Refused, RequestCode } from "../moqt/error.js";
import { encodeMessage } from "../moqt/message.js";
import { Session } from "../moqt/session.js";
import { RequestStream } from "../moqt/streams.js";

/** @typedef {import("../moqt/draft.js").Draft} Draft */

/** The relay's end of a WebTransport session, in place of the browser's class. */
class Relay {
  /** The subprotocol that the relay chooses; `undefined` in browsers that do not tell it.
   * @type {string | undefined} */
  static chosen;
  /** The relay of the last session.
   * @type {Relay} */
  static last;

  /**
   * @param {string} _url
   * @param {{ protocols: string[] }} options
   */
  constructor(_url, { protocols }) {
    this.offered = protocols;
    this.protocol = Relay.chosen;
    this.ready = Promise.resolve();
    this.closed = new Promise((resolve) => {
      this.close = () => resolve({});
    });
    this.incomingUnidirectionalStreams = new ReadableStream({ start: (controller) => { this.streams = controller; } });
    this.incomingBidirectionalStreams = new ReadableStream({ start: (controller) => { this.requests = controller; } });
    this.datagrams = { readable: new ReadableStream() };
    /** The requests that were not taken.
     * @type {any[]} */
    this.opened = [];
    Relay.last = this;
  }

  async createUnidirectionalStream() {
    return new WritableStream();
  }

  async createBidirectionalStream() {
    const [there, back] = [new TransformStream(), new TransformStream()];
    this.opened.push({ readable: there.readable, writable: back.writable });
    return { readable: back.readable, writable: there.writable };
  }

  /**
   * Returns the oldest request stream that was not taken.
   *
   * @param {Draft} draft
   */
  request(draft) {
    return new RequestStream(this.opened.shift(), draft);
  }

  /**
   * Opens a stream for a request.
   *
   * @param {Draft} draft
   */
  open(draft) {
    const [there, back] = [new TransformStream(), new TransformStream()];
    this.requests?.enqueue({ readable: there.readable, writable: back.writable });
    return new RequestStream({ readable: back.readable, writable: there.writable }, draft);
  }

  /**
   * Opens a stream with these bytes.
   *
   * @param {Uint8Array} bytes
   * @param {boolean} isWhole whether the stream ends with them
   */
  send(bytes, isWhole) {
    this.streams?.enqueue(new ReadableStream({
      start(controller) {
        controller.enqueue(bytes);
        if (isWhole) controller.close();
      },
    }));
  }
}

globalThis.WebTransport = /** @type {any} */ (Relay);

/** @param {Draft} draft */
async function connected(draft) {
  Relay.chosen = protocolOf(draft);
  const connecting = Session.connect("https://relay.example/", {});
  Relay.last.send(encodeMessage({ type: "SETUP", authorizationTokens: [] }, draft), false);
  const session = await connecting;
  assert.equal(session.draft, draft);
  return { session, relay: Relay.last };
}

/**
 * Subscribes to a track whose largest object is 300:200.
 *
 * @param {Session} session
 * @param {Relay} relay
 * @param {import("../moqt/session.js").Sink} [past]
 */
async function subscribed(session, relay, past) {
  const name = { namespace: [Uint8Array.of(1)], trackName: Uint8Array.of(2) };
  const parameters = { filter: /** @type {const} */ ({ type: "LargestObject" }) };
  const subscribing = session.subscribe(name, parameters, { onObject: () => {} }, past);
  await Promise.resolve();
  const request = relay.request(session.draft);
  const asked = await request.next();
  const fill = { fill: { filter: { type: "Recent", groups: 0n } } };
  const isFilled = past && !hasJoiningFetches(session.draft);
  assert.deepEqual(asked, { type: "SUBSCRIBE", requestId: 0n, ...name, parameters: { ...parameters, ...(isFilled ? fill : {}) } });
  await request.send({
    type: "SUBSCRIBE_OK", trackAlias: 7n, parameters: { largestObject: { group: 300n, object: 200n } }, properties: [],
  });
  return { subscription: await subscribing, request };
}

test("all drafts are offered, the newest first, unless the page limits them", async () => {
  await connected(22);
  assert.deepEqual(Relay.last.offered, ["moqt-22", "moqt-21", "moqt-20", "moqt-19", "moqt-18"]);
  Relay.chosen = undefined;
  const one = Session.connect("https://relay.example/", { protocols: ["moqt-19"] });
  Relay.last.send(encodeMessage({ type: "SETUP", authorizationTokens: [] }, 19), false);
  assert.equal((await one).draft, 19);
  Relay.chosen = "moqt-99";
  await assert.rejects(Session.connect("https://relay.example/", {}), /no draft of MOQT that was offered: moqt-99/);
});

for (const draft of DRAFTS) {
  test(`the past of a subscription is fetched in draft-${draft}`, async () => {
    const { session, relay } = await connected(draft);
    const { subscription, request } = await subscribed(session, relay);
    /** @type {(object: import("../moqt/streams.js").WholeObject) => void} */
    let deliver = () => {};
    const delivered = new Promise((resolve) => { deliver = resolve; });
    const fetching = session.fetchJoining(subscription, 199n, { onObject: deliver });
    await Promise.resolve();
    if (hasJoiningFetches(draft)) {
      const stream = relay.request(draft);
      const fetch = { type: "RelativeJoining", requestId: 0n, groups: 199n };
      assert.deepEqual(await stream.next(), { type: "FETCH", requestId: 2n, fetch, parameters: {} });
      const end = { group: 300n, object: 200n };
      await stream.send({ type: "FETCH_OK", endOfTrack: false, end, parameters: {}, properties: [] });
    } else {
      const fill = { filter: { type: "Recent", groups: 199n } };
      assert.deepEqual(await request.next(), { type: "REQUEST_UPDATE", requestId: 2n, parameters: { fill } });
      await request.send({ type: "REQUEST_OK", parameters: {}, properties: [] });
    }
    await fetching;
    relay.send(Uint8Array.of(0x05, 2, 0x1c, 0x80, 0xc8, 0x03, 0x80, 1, 0x61), true);
    const { group, id, payload } = /** @type {any} */ (await delivered);
    assert.deepEqual([group, id, [...payload]], [200n, 3n, [0x61]]);
  });

  test(`the past is requested with the subscription if draft-${draft} has fills`, async () => {
    const { session, relay } = await connected(draft);
    /** @type {(object: import("../moqt/streams.js").WholeObject) => void} */
    let deliver = () => {};
    const delivered = new Promise((resolve) => { deliver = resolve; });
    const past = { onObject: deliver };
    const { subscription } = await subscribed(session, relay, past);
    const fetching = session.fetchJoining(subscription, 0n, past);
    await Promise.resolve();
    assert.equal(relay.opened.length, hasJoiningFetches(draft) ? 1 : 0);
    if (hasJoiningFetches(draft)) return;
    await fetching;
    relay.send(Uint8Array.of(0x05, 0, 0x1c, 0x81, 0x2c, 0x03, 0x80, 1, 0x61), true);
    const { group, id } = /** @type {any} */ (await delivered);
    assert.deepEqual([group, id], [300n, 3n]);
  });

  test(`a refused request for the past is told in draft-${draft}`, async () => {
    const { session, relay } = await connected(draft);
    const { subscription, request } = await subscribed(session, relay);
    const fetching = session.fetchJoining(subscription, 0n, { onObject: () => {} });
    await Promise.resolve();
    const stream = hasJoiningFetches(draft) ? relay.request(draft) : request;
    await stream.next();
    await stream.send({ type: "REQUEST_ERROR", code: BigInt(RequestCode.INVALID_RANGE), reason: "none" });
    await assert.rejects(fetching, Refused);
  });

  test(`a relay subscribes to the tracks of a namespace when it wants them in draft-${draft}`, async () => {
    const { session, relay } = await connected(draft);
    const name = { namespace: [Uint8Array.of(1), Uint8Array.of(2)], trackName: Uint8Array.of(3) };
    const ask = async (/** @type {import("../moqt/name.js").FullTrackName} */ track, /** @type {bigint} */ requestId, forward = true) => {
      const request = relay.open(draft);
      await request.send({ type: "SUBSCRIBE", requestId, ...track, parameters: { forward } });
      return { request, answer: /** @type {any} */ (await request.next()) };
    };
    // Nothing is offered.
    const { answer: none } = await ask(name, 1n);
    assert.deepEqual([none.type, none.code], ["REQUEST_ERROR", BigInt(RequestCode.NOT_SUPPORTED)]);

    const track = session.offers.add(name);
    /** @type {boolean[]} */
    const changes = [];
    track.onForward = () => changes.push(track.isForwarding);
    const announcing = session.publishNamespace(name.namespace);
    await Promise.resolve();
    const announced = relay.request(draft);
    assert.deepEqual(await announced.next(), { type: "PUBLISH_NAMESPACE", requestId: 0n, namespace: name.namespace, parameters: {} });
    await announced.send({ type: "REQUEST_OK", parameters: {}, properties: [] });
    await announcing;
    assert.equal(track.isForwarding, false);

    const other = { namespace: [Uint8Array.of(1)], trackName: Uint8Array.of(2, 3) };
    const { answer: unknown } = await ask(other, 3n);
    assert.deepEqual([unknown.type, unknown.code], ["REQUEST_ERROR", BigInt(RequestCode.DOES_NOT_EXIST)]);

    const { request, answer } = await ask(name, 5n, false);
    assert.deepEqual(answer, { type: "SUBSCRIBE_OK", trackAlias: 0n, parameters: {}, properties: [] });
    const { answer: second } = await ask(name, 7n);
    assert.deepEqual([second.type, second.code], ["REQUEST_ERROR", BigInt(RequestCode.EXCESSIVE_LOAD)]);
    await request.send({ type: "REQUEST_UPDATE", requestId: 9n, parameters: { forward: true } });
    assert.deepEqual(await request.next(), { type: "REQUEST_OK", parameters: {}, properties: [] });
    const stream = track.open(300n, 0n, 1);
    stream.write(2n, [], Uint8Array.of(9));
    // STOP_SENDING ends a subscription, and another one may follow.
    await request.reader.cancel();
    while (track.isForwarding) await new Promise(setImmediate);
    const { request: again, answer: later } = await ask(name, 11n);
    assert.deepEqual(later.parameters, { largestObject: { group: 300n, object: 2n } });
    while (!track.isForwarding) await new Promise(setImmediate);
    assert.deepEqual(changes, [true, false, true]);
    track.open(301n, 0n, 1);
    await Promise.all([track.done(), again.next().then((done) => {
      assert.deepEqual(done, { type: "PUBLISH_DONE", code: 2n, streamCount: 1n, reason: "" });
    })]);
    const { answer: over } = await ask(name, 13n);
    assert.equal(over.code, BigInt(RequestCode.DOES_NOT_EXIST));
  });
}
