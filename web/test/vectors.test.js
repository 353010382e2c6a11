// Runs the golden vectors of `vectors/moqt/draft18`, whose format `vectors/README.md` describes.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Writer } from "../moqt/cursor.js";
import { Violation } from "../moqt/error.js";
import { MessageReader, encodeMessage } from "../moqt/message.js";
import { formatName, parseName } from "../moqt/name.js";
import { FetchReader, SubgroupReader, decodeDatagram, encodeDatagram, writeObject, writeSubgroupHeader } from "../moqt/object.js";
import { decode, encode } from "../moqt/varint.js";

/**
 * @param {string} file
 * @returns {any[]}
 */
function load(file) {
  const path = new URL(`../../vectors/moqt/draft18/${file}`, import.meta.url);
  const { vectors } = JSON.parse(readFileSync(path, "utf8"));
  assert.ok(vectors.length > 0);
  return vectors;
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
  assert.deepEqual(plain(value), vector[key], vector.name);
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

/** @param {Uint8Array[]} pieces */
function readMessage(pieces) {
  const reader = new MessageReader();
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
const KEPT = "SUBSCRIBE_OK with properties in non-minimal integers, which are kept";

test("messages", () => {
  for (const vector of load("messages.json")) {
    const bytes = unhex(vector.hex);
    for (const pieces of splits(bytes)) check(vector, "message", () => readMessage(pieces));
    if (vector.message) {
      const message = readMessage([bytes]);
      const encoded = encodeMessage(message);
      if (vector.canonical !== false && vector.name !== KEPT) assert.equal(hex(encoded), vector.hex, vector.name);
      assert.deepEqual(readMessage([encoded]), message, vector.name);
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
  for (const vector of load("fetch.json")) {
    for (const pieces of splits(unhex(vector.hex))) {
      check(vector, "items", () => readItems(new FetchReader(vector.order), pieces));
    }
  }
});
