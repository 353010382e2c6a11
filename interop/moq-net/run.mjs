// Plays a track of the library @moq/net through weir's relay in Chromium, in each draft that the library has.
//
//     WEIR=target/release/weir node interop/moq-net/run.mjs
//
// Needs `npm ci` here and in web/. Prints a line for each case, with | between how, the failure (empty if none), and a
// note.

import { createServer } from "node:http";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

import { Stage } from "../../web/browser/stage.js";

const DRAFTS = [20, 19, 18];
const CASE_MS = 30_000;

const { outputFiles } = await build({
  entryPoints: [join(dirname(fileURLToPath(import.meta.url)), "page.js")],
  bundle: true, write: false, format: "iife", logLevel: "error",
});
// A page of this machine has WebTransport without a certificate of its own, and may reach a relay here.
const server = createServer((_request, response) => {
  response.setHeader("Content-Type", "text/html").end("<!doctype html><title>moq</title>");
});
await new Promise((resolve) => { server.listen(0, "127.0.0.1", () => resolve(undefined)); });
const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
const stage = new Stage();
let failed = 0;
try {
  stage.certificate();
  const hash = [...Buffer.from(stage.hash ?? "", "hex")];
  const browser = await stage.browser();
  const { ready } = await stage.relay("127.0.0.1:0");
  for (const draft of DRAFTS) {
    const page = await browser.newPage();
    await page.goto(`http://127.0.0.1:${port}/`);
    await page.addScriptTag({ content: outputFiles[0].text });
    /** @type {Promise<string>} */
    const played = page.evaluate(
      ([url, certificate, protocol]) => globalThis.play(url, certificate, protocol),
      [`https://${ready.listening}/`, hash, `moqt-${draft}`],
    );
    const late = new Promise((_resolve, reject) => {
      setTimeout(() => reject(new Error("nothing more came")), CASE_MS).unref();
    });
    const [reason, note] = await Promise.race([played, late]).then(
      (text) => ["", text],
      (error) => [String(error.message).split("\n")[0].replace("page.evaluate: ", ""), ""],
    );
    if (reason) failed += 1;
    console.log([`https, draft-${draft}`, reason, note].map((cell) => cell.replaceAll("|", " ")).join("|"));
    await page.close();
  }
} finally {
  await stage.end();
  server.close();
}
process.exitCode = failed > 0 ? 1 : 0;
