// A publisher and a subscriber with @moq/net, at one relay. Runs in a browser, since Node has no WebTransport.

import { Broadcast, Connection, Path, Time } from "@moq/net";

/** Frames of each group, and groups. */
const [FRAMES, GROUPS] = [3, 5];
const GROUP_MS = 200;

/**
 * Publishes a track, and receives it in another session.
 *
 * @param {string} url of the relay
 * @param {number[]} hash of its certificate
 * @param {string} protocol the draft's WebTransport subprotocol
 * @returns {Promise<string>} what came
 */
globalThis.play = async (url, hash, protocol) => {
  const connect = async () => {
    const transport = new WebTransport(url, {
      protocols: [protocol],
      serverCertificateHashes: [{ algorithm: "sha-256", value: Uint8Array.from(hash) }],
    });
    await transport.ready;
    // Chromium does not tell the protocol, of which one is offered.
    if (transport.protocol === undefined) Object.defineProperty(transport, "protocol", { value: protocol });
    return Connection.connect(new URL(url), { transport });
  };
  const path = Path.from(`moq-net/${protocol}`);
  const publisher = await connect();
  const broadcast = new Broadcast.Producer();
  const track = broadcast.createTrack("t");
  publisher.publish(path, broadcast);

  const subscriber = await connect();
  const announced = subscriber.announced();
  for (let event = await announced.next(); event?.path !== path; event = await announced.next()) {
    if (!event) throw new Error("the broadcast was not announced");
  }
  const received = receive(subscriber.consume(path).track("t").subscribe());
  // The publisher sends from the first subscription on.
  while (!track.used.peek()) await new Promise((resolve) => setTimeout(resolve, 20));
  for (let group = 0; group < GROUPS; group += 1) {
    const producer = track.appendGroup();
    for (let frame = 0; frame < FRAMES; frame += 1) {
      producer.writeFrame({ payload: payload(producer.sequence, frame), timestamp: Time.Timestamp.now() });
    }
    producer.close();
    await new Promise((resolve) => setTimeout(resolve, GROUP_MS));
  }
  track.close();
  const result = await received;
  subscriber.close();
  publisher.close();
  return result;
};

/**
 * @param {import("@moq/net").Track.Subscriber} track
 * @returns {Promise<string>}
 */
async function receive(track) {
  let [groups, frames] = [0, 0];
  for (let group = await track.nextGroup(); group; group = await track.nextGroup()) {
    groups += 1;
    let number = 0;
    for (let frame = await group.readFrame(); frame; frame = await group.readFrame()) {
      const expected = payload(group.sequence, number);
      const isWhole = frame.payload.length === expected.length && frame.payload.every((byte, at) => byte === expected[at]);
      if (!isWhole) throw new Error(`another payload in frame ${number} of group ${group.sequence}`);
      number += 1;
    }
    if (number !== FRAMES) throw new Error(`${number} frames in group ${group.sequence}`);
    frames += number;
    if (groups === GROUPS) break;
  }
  if (groups !== GROUPS) throw new Error(`the track ended after ${groups} groups`);
  return `${frames} frames of ${groups} groups`;
}

/**
 * @param {number} group
 * @param {number} frame
 */
function payload(group, frame) {
  return new TextEncoder().encode(`${group}/${frame} `.repeat(20));
}
