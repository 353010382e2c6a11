// The texts and numbers of the pages.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Refused, RequestCode } from "../moqt/error.js";
import { droppedByKind } from "../ui/dropped.js";
import { whyNoPublishing, whyNoSound, whyNotPublished } from "../ui/words.js";

/** Frames in order of arrival, by kind and index in the group. Those with `*` were shown.
 *
 * @param {...string} groups
 * @returns {import("../player/records.js").FrameRecord[]} */
function arrived(...groups) {
  return groups.flatMap((frames, group) => frames.split(" ").map((text) => ({
    number: 0,
    group,
    kind: /** @type {"I" | "P" | "B"} */ (text[0]),
    bytes: 1,
    presentation_us: (group * 100 + Number(text.slice(1).replace("*", ""))) * 1000,
    available_us: 0,
    arrived_us: 0,
    shown_us: text.endsWith("*") ? 0 : null,
  })));
}

/** @param {...string} groups */
function dropped(...groups) {
  const frames = arrived(...groups);
  const counters = { I: { received: 0, shown: 0 }, P: { received: 0, shown: 0 }, B: { received: 0, shown: 0 } };
  for (const { kind, shown_us } of frames) {
    counters[kind].received += 1;
    counters[kind].shown += shown_us === null ? 0 : 1;
  }
  return droppedByKind(counters, frames);
}

test("dropped is what will not be shown any more, not what still may", () => {
  assert.deepEqual(dropped("I0 P4 B1"), { I: 0, P: 0, B: 0 }, "nothing was shown yet");
  assert.deepEqual(dropped("I0* P4 B1* B2"), { I: 0, P: 0, B: 0 }, "P4 is due after the B-frames that need it");
  assert.deepEqual(dropped("I0* P4* B1 B2* B3* P8"), { I: 0, P: 0, B: 1 }, "B1 belongs before what is on the screen");
  assert.deepEqual(dropped("I0* P4 B1", "I0* P4"), { I: 0, P: 1, B: 1 }, "a later group is on the screen");
  assert.deepEqual(dropped("I0* P4", "I0", "I0* P4* B1 B2"), { I: 1, P: 1, B: 2 });
});

test("frames that are no longer kept still count", () => {
  const counters = { I: { received: 10, shown: 8 }, P: { received: 5, shown: 5 }, B: { received: 3, shown: 0 } };
  assert.deepEqual(droppedByKind(counters, arrived("I0* B1")), { I: 2, P: 0, B: 2 });
});

test("why nothing can be published is said in plain words", () => {
  const target = { relay: "https://relay/", namespace: "live/alice", certificateHashes: [], token: undefined };
  const refusal = (/** @type {number} */ code) => new Refused(BigInt(code), "not you", undefined, undefined);
  assert.equal(whyNotPublished(refusal(RequestCode.UNAUTHORIZED), target), "The relay does not let you publish “live/alice”: a token is needed. Add token=TOKEN to this page's address.");
  assert.equal(
    whyNotPublished(refusal(RequestCode.UNAUTHORIZED), { ...target, token: "of another" }),
    "The relay does not let you publish “live/alice”: the token does not permit it.",
  );
  assert.equal(whyNotPublished(refusal(RequestCode.EXPIRED_AUTH_TOKEN), target), "The relay does not let you publish “live/alice”: the token has expired.");
  assert.equal(whyNotPublished(refusal(RequestCode.EXCESSIVE_LOAD), target), "The relay refused the stream “live/alice”: not you");
  const named = (/** @type {string} */ name) => Object.assign(new Error("as the browser says it"), { name });
  assert.equal(whyNotPublished(named("NotAllowedError"), undefined), "The browser did not allow this page to use the camera or the microphone. Allow it, then press “Go live” again.");
  assert.match(whyNotPublished(named("NotFoundError"), undefined), /^There is no camera/);
  assert.match(whyNotPublished(named("NotReadableError"), undefined), /another program/);
  assert.equal(whyNotPublished(named("WebTransportError"), target), "The relay at https://relay/ cannot be reached, or the browser does not trust its certificate. Check that the relay is running and that UDP is not blocked. If no authority has signed its certificate, add hash=HASH to this page's address.");
  assert.equal(
    whyNotPublished(named("WebTransportError"), { ...target, certificateHashes: [new Uint8Array(32)] }),
    "The relay at https://relay/ cannot be reached, or its certificate does not match the hash that this page has. Check that the relay is running, that the hash is current, and that the certificate is valid for at most 14 days: browsers accept no other by its hash.",
  );
  assert.match(whyNotPublished(named("TypeError"), undefined), /^The page's server does not answer/);
  assert.equal(whyNotPublished(named("RangeError"), target), "as the browser says it");
});

test("what the browser lacks to publish is named, one thing after the other", () => {
  assert.match(whyNoPublishing(), /WebTransport only over https/, "node is not a page of https");
  const given = { isSecureContext: true };
  const steps = [["WebTransport", /no WebTransport/], ["VideoEncoder", /cannot encode video/], ["MediaStreamTrackProcessor", /camera/]];
  try {
    Object.assign(globalThis, given);
    for (const [name, reason] of /** @type {[string, RegExp][]} */ (steps)) {
      assert.match(whyNoPublishing(), reason);
      Object.assign(globalThis, { [name]: class {} });
    }
    assert.equal(whyNoPublishing(), "");
    assert.match(whyNoSound(), /without sound/);
    Object.assign(globalThis, { AudioEncoder: class {} });
    assert.equal(whyNoSound(), "");
  } finally {
    for (const name of ["isSecureContext", "WebTransport", "VideoEncoder", "MediaStreamTrackProcessor", "AudioEncoder"]) Reflect.deleteProperty(globalThis, name);
  }
});
