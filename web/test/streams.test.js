import assert from "node:assert/strict";
import { test } from "node:test";

import { Assembly } from "../moqt/streams.js";

/** @type {any} */
const HEAD = { group: 1n, object: 2n };

test("an announced length alone costs little memory", () => {
  const assembly = new Assembly();
  assembly.begin(HEAD, 16 << 20);
  assert.ok(assembly.payload.length <= 64 << 10);
  const piece = new Uint8Array(1000).fill(7);
  for (let count = 1; count <= 200; count += 1) {
    assembly.add(piece);
    assert.ok(assembly.payload.length <= Math.max(64 << 10, 2 * 1000 * count), `${count} kB`);
  }
  assert.equal(assembly.take(), undefined);
});

test("objects of any size are assembled from their pieces", () => {
  for (const length of [0, 1, 1000, 64 << 10, (64 << 10) + 1, 300_000]) {
    const assembly = new Assembly();
    assembly.begin(HEAD, length);
    const payload = Uint8Array.from({ length }, (_, at) => at % 251);
    for (let at = 0; at < length; at += 1200) {
      if (at > 0) assert.equal(assembly.take(), undefined);
      assembly.add(payload.subarray(at, at + 1200));
    }
    assert.deepEqual(assembly.take(), { ...HEAD, payload });
    assert.equal(assembly.take(), undefined, "each once");
  }
});
