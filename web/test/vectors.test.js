// Runs the golden vectors of `vectors/moqt` in all drafts. `vectors/README.md` describes their format.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";

import { Writer } from "../moqt/cursor.js";
import { DRAFTS } from "../moqt/draft.js";
import { Violation } from "../moqt/error.js";
import { MessageReader, encodeMessage } from "../moqt/message.js";
import { formatName, parseName } from "../moqt/name.js";
import { FetchReader, SubgroupReader, decodeDatagram, encodeDatagram, writeObject, writeSubgroupHeader } from "../moqt/object.js";
import { decode, encode } from "../moqt/varint.js";

/** @typedef {import("../moqt/draft.js").Draft} Draft */

/** The folders of each draft's vectors, in the order in which they replace each other.
 * @type {Record<Draft, Draft[]>} */
const FOLDERS = { 18: [18], 19: [18, 19], 20: [18, 19, 20], 21: [18, 19, 20], 22: [18, 19, 20, 22] };

/**
 * Returns the vectors of a draft.
 *
 * @param {string} file
 * @param {Draft} draft
 * @returns {any[]}
 */
function load(file, draft = 18) {
  /** @type {any[]} */
  let vectors = [];
  for (const folder of FOLDERS[draft]) {
    const path = new URL(`../../vectors/moqt/draft${folder}/${file}`, import.meta.url);
    if (!existsSync(path)) continue;
    const own = JSON.parse(readFileSync(path, "utf8"));
    const replaced = new Set([...own.vectors.map((/** @type {any} */ vector) => vector.name), ...(own.absent ?? [])]);
    vectors = [...vectors.filter((vector) => !replaced.has(vector.name)), ...own.vectors];
  }
  assert.ok(vectors.length > 0);
  return vectors;
}

/**
 * Returns the vectors of all drafts, each with its draft.
 *
 * @param {string} file
 * @returns {{ draft: Draft, vector: any }[]}
 */
function loadAll(file) {
  return DRAFTS.flatMap((draft) => load(file, draft).map((vector) => ({
    draft,
    vector: { ...vector, name: `${vector.name} (draft-${draft})` },
  })));
}

/** @param {string} hex */
function unhex(hex) {
  return Uint8Array.from(hex.match(/../g) ?? [], (digits) => Number.parseInt(digits, 16));
}

/** @param {Uint8Array} bytes */
function hex(bytes) {
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Returns a value in the form of the vectors: integers in decimal, bytes in hex, keys with underscores.
 *
 * @param {unknown} value
 * @returns {unknown}
 */
function plain(value) {
  if (typeof value === "bigint" || typeof value === "number") return value.toString();
  if (value instanceof Uint8Array) return hex(value);
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).filter(([, inner]) => inner !== undefined);
  return Object.fromEntries(entries.map(([key, inner]) => [key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), plain(inner)]));
}

/**
 * Returns the bytes in one piece, byte by byte, and cut in two at each place.
 *
 * @param {Uint8Array} bytes
 * @returns {Uint8Array[][]}
 */
function splits(bytes) {
  const all = [[bytes], [...bytes].map((byte) => Uint8Array.of(byte))];
  if (bytes.length < 300) {
    for (let at = 1; at < bytes.length; at++) all.push([bytes.slice(0, at), bytes.slice(at)]);
  }
  return all;
}

/**
 * Compares the result of `read` with the vector, or its error.
 *
 * @param {any} vector
 * @param {string} key
 * @param {() => unknown} read
 */
function check(vector, key, read) {
  let value;
  try {
    value = read();
  } catch (error) {
    if (!(error instanceof Violation)) throw error;
    assert.equal(error.code, vector.error, `${vector.name}: ${error.message}`);
    return;
  }
  assert.deepEqual(withKinds(plain(value)), withKinds(vector[key]), vector.name);
}

/**
 * Returns a message whose range filters have only their kinds. This endpoint accepts none, and keeps their conditions as bytes,
 * which the encoded message shows.
 *
 * @param {any} value
 */
function withKinds(value) {
  /** @type {(parameters: any) => any} */
  const kinds = (parameters) => parameters && {
    ...parameters,
    ...(parameters.range_filters ? { range_filters: parameters.range_filters.map((/** @type {any} */ { kind }) => kind) } : {}),
    ...(parameters.fill ? { fill: kinds(parameters.fill) } : {}),
  };
  return value?.parameters ? { ...value, parameters: kinds(value.parameters) } : value;
}

test("integers", () => {
  for (const vector of load("varint.json")) {
    const bytes = unhex(vector.hex);
    const read = decode(bytes);
    if (!read) {
      assert.equal(vector.error, "short", vector.name);
      continue;
    }
    assert.equal(read[0].toString(), vector.value, vector.name);
    assert.equal(read[1], bytes.length, vector.name);
    /** @type {number[]} */
    const out = [];
    encode(read[0], out);
    if (vector.canonical !== false) assert.equal(hex(Uint8Array.from(out)), vector.hex, vector.name);
  }
});

test("names", () => {
  for (const vector of load("names.json")) {
    const name = parseName(vector.text);
    if (!name) {
      assert.equal(vector.error, "invalid", vector.name);
      continue;
    }
    assert.deepEqual(name.namespace.map(hex), vector.namespace, vector.name);
    assert.equal(hex(name.trackName), vector.track_name, vector.name);
    assert.equal(formatName(name), vector.text);
  }
});

/**
 * @param {Draft} draft
 * @param {Uint8Array[]} pieces
 */
function readMessage(draft, pieces) {
  const reader = new MessageReader(draft);
  const messages = [];
  for (const piece of pieces) {
    reader.push(piece);
    for (let message = reader.poll(); message; message = reader.poll()) messages.push(message);
  }
  reader.fin();
  assert.equal(messages.length, 1);
  return messages[0];
}

/** Only a relay must keep the exact bytes of properties. A client reads and writes its own. */
const KEPT = /^SUBSCRIBE_OK with properties in non-minimal integers, which are kept /;

test("messages", () => {
  for (const { draft, vector } of loadAll("messages.json")) {
    const bytes = unhex(vector.hex);
    for (const pieces of splits(bytes)) check(vector, "message", () => readMessage(draft, pieces));
    if (vector.message) {
      const message = readMessage(draft, [bytes]);
      const encoded = encodeMessage(message, draft);
      if (vector.canonical !== false && !KEPT.test(vector.name)) assert.equal(hex(encoded), vector.hex, vector.name);
      assert.deepEqual(readMessage(draft, [encoded]), message, vector.name);
    }
  }
});

test("datagrams", () => {
  for (const vector of load("datagram.json")) {
    check(vector, "datagram", () => decodeDatagram(unhex(vector.hex)));
    if (!vector.datagram || vector.canonical === false) continue;
    const datagram = decodeDatagram(unhex(vector.hex));
    assert.ok(datagram !== "padding");
    assert.equal(hex(encodeDatagram(datagram)), vector.hex, vector.name);
  }
});

/**
 * Returns the items of a stream, with the pieces of each payload joined.
 *
 * @param {SubgroupReader | FetchReader} reader
 * @param {Uint8Array[]} pieces
 */
function readItems(reader, pieces) {
  /** @type {any[]} */
  const items = [];
  for (const piece of pieces) {
    reader.push(piece);
    for (let item = reader.poll(); item; item = reader.poll()) {
      const last = items.at(-1);
      if ("payload" in item && last && "payload" in last) last.payload = unhex(hex(last.payload) + hex(item.payload));
      else items.push({ ...item });
    }
  }
  reader.fin();
  return items;
}

test("subgroups", () => {
  for (const vector of load("subgroup.json")) {
    for (const pieces of splits(unhex(vector.hex))) {
      check(vector, "items", () => readItems(new SubgroupReader(), pieces));
    }
    if (!vector.items || vector.canonical === false) continue;
    const writer = new Writer();
    /** @type {bigint | undefined} */
    let previous;
    let hasProperties = false;
    for (const item of readItems(new SubgroupReader(), [unhex(vector.hex)])) {
      if (item.header) {
        hasProperties = item.header.hasProperties;
        writeSubgroupHeader(writer, item.header);
      } else if (item.object) {
        writeObject(writer, item.object, previous, hasProperties);
        previous = item.object.id;
      } else {
        writer.bytes(item.payload);
      }
    }
    assert.equal(hex(writer.finish()), vector.hex, vector.name);
  }
});

test("fetches", () => {
  for (const { draft, vector } of loadAll("fetch.json")) {
    for (const pieces of splits(unhex(vector.hex))) {
      check(vector, "items", () => readItems(new FetchReader(vector.order, draft), pieces));
    }
  }
});
