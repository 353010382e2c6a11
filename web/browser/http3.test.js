// weir's HTTP/3 server with a real browser. The browser cannot fall back, since no other server uses the port. The
// variable WEIR names the program; without it the test is skipped.

import assert from "node:assert/strict";
import { createHash, X509Certificate } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";

import { chromium } from "playwright-core";

import { STORY_MS, Stage, WEIR } from "./stage.js";

const skip = WEIR === "" ? "WEIR does not name the program" : false;
const stage = new Stage();
after(() => stage.end());

test("Chromium fetches files and sizes from our HTTP/3 server, several at once", { skip, timeout: STORY_MS }, async () => {
  const { certificate, key } = stage.certificate();
  const root = join(stage.folder, "root");
  mkdirSync(root);
  writeFileSync(join(root, "index.html"), "<!doctype html><title>weir</title><link rel=icon href=data:,><p>over HTTP/3</p>");
  const { ready } = await stage.weir(["h3", "serve", "--listen", "127.0.0.1:0", "--root", root, "--cert", certificate, "--key", key]);
  const authority = ready.listening;
  const { publicKey } = new X509Certificate(readFileSync(certificate));
  const spki = createHash("sha256").update(publicKey.export({ type: "spki", format: "der" })).digest("base64");
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    headless: true,
    args: [`--origin-to-force-quic-on=${authority}`, `--ignore-certificate-errors-spki-list=${spki}`],
  });
  try {
    const page = await browser.newPage();
    /** @type {string[]} */
    const complaints = [];
    page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
    page.on("pageerror", (error) => complaints.push(String(error)));
    const answer = await page.goto(`https://${authority}/index.html`);
    assert.equal(answer?.status(), 200);
    assert.equal(await page.textContent("p"), "over HTTP/3");
    const sizes = { "1k": 1024, "5k": 5120, "15k": 15_360, "50k": 51_200, "2m": 2_097_152 };
    const lengths = await page.evaluate(
      (names) => Promise.all(names.map(async (name) => (await (await fetch(`/${name}`)).arrayBuffer()).byteLength)),
      [...Object.keys(sizes), ...Object.keys(sizes)],
    );
    assert.deepEqual(lengths, [...Object.values(sizes), ...Object.values(sizes)]);
    const protocols = await page.evaluate(() =>
      [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")].map((entry) =>
        /** @type {PerformanceResourceTiming} */ (entry).nextHopProtocol),
    );
    assert.deepEqual([...new Set(protocols)], ["h3"]);
    assert.deepEqual(complaints, []);
    const codes = await page.evaluate(() =>
      Promise.all([
        fetch("/nothing-here").then(({ status }) => status),
        fetch("/1k", { method: "HEAD" }).then(({ status }) => status),
        fetch("/1k", { method: "POST", body: "x" }).then(({ status }) => status),
      ]),
    );
    assert.deepEqual(codes, [404, 200, 405]);
  } finally {
    await browser.close();
  }
});
