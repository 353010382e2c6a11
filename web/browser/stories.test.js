// Stories of a page in a real browser, with real relays and publishers. The variable WEIR names the program; without it
// the tests are skipped.
//
//     WEIR=target/debug/weir node --test web/browser/
//
// SCREENSHOTS names a folder for pictures of the page. Times are reported and compared with each other, but never with
// a limit.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { Link, PATIENCE_MS, STORY_MS, Stage, WEIR } from "./stage.js";

const stage = new Stage();
const skip = WEIR === "" ? "WEIR does not name the program" : false;
const SCREENSHOTS = process.env.SCREENSHOTS;
/** Network warnings that the stories cause. */
const OF_THE_STORY = /net::ERR_|Failed to load resource|WebTransport/;
/** @type {string} */
let clip;
/** @type {string} */
let otherClip;

before(() => {
  if (skip) return;
  clip = stage.clip("640x360");
  otherClip = stage.clip("320x180");
});
after(() => stage.end());

test("one command shows a stream", { skip, timeout: STORY_MS }, async () => {
  const { program, ready } = await stage.weir(["live", "watch", "--page", "127.0.0.1:0", "--input", clip]);
  const watched = await stage.open(ready.page);
  await watched.says("live");
  await watched.draws(48);
  const one = await watched.picture();
  await watched.draws(12);
  assert.notEqual(await watched.picture(), one, "pixels change");
  await watched.page.click("#sound");
  await watched.draws(72);
  const { lately, byKind, video, audio, inSync } = await watched.figures();
  console.log(`latency: median ${lately.latency_median.toFixed(3)} s, p95 ${lately.latency_p95.toFixed(3)} s; ` +
    `shown ${(lately.shown * 100).toFixed(1)} %; picture behind sound ${inSync} s`);
  assert.ok(byKind.I.shown > 0 && byKind.P.shown > 0 && byKind.B.shown > 0, "frames of all kinds are shown");
  assert.equal(video.errors, 0);
  assert.ok(audio.decoded > 0, "there is sound");
  assert.deepEqual(stage.complaints, []);
  const exported = /** @type {any} */ (await watched.page.evaluate("weir.export()"));
  assert.equal(exported.strategy, "weir");
  assert.ok(exported.frames.length > 100 && exported.figures.frames >= exported.frames.length);
  if (SCREENSHOTS) {
    await watched.page.emulateMedia({ colorScheme: "light" });
    await watched.page.screenshot({ path: join(SCREENSHOTS, "watch-light.png") });
    await watched.page.emulateMedia({ colorScheme: "dark" });
    await watched.page.setViewportSize({ width: 1280, height: 800 });
    await watched.draws(12);
    await watched.page.screenshot({ path: join(SCREENSHOTS, "watch-dark.png") });
  }
  await watched.page.context().close();
  await program.end("SIGINT");
});

test("one command and nothing else shows a generated picture, and its sound is heard", { skip, timeout: STORY_MS }, async () => {
  const { program, ready } = await stage.weir(["live", "watch", "--page", "127.0.0.1:0"]);
  const watched = await stage.open(ready.page);
  await watched.says("live");
  await watched.page.click("#sound");
  await watched.draws(48);
  assert.match(await watched.picture(), /^1280x720:/);
  await watched.page.waitForFunction("weir.figures().audio.decoded > 20");
  const { lately, video, audio } = await watched.figures();
  console.log(`generated: latency median ${lately.latency_median.toFixed(3)} s, shown ${(lately.shown * 100).toFixed(1)} %`);
  assert.equal(video.errors + audio.errors, 0);
  assert.deepEqual(stage.complaints, []);
  await watched.page.context().close();
  await program.end("SIGINT");
});

test("every way of delivery and both packagings play", { skip, timeout: STORY_MS }, async () => {
  for (const [strategy, packaging] of [["baseline", "loc"], ["combined", "cmaf"], ["skip", "loc"], ["deprioritize-b", "cmaf"]]) {
    const { program, ready } = await stage.weir([
      "live", "watch", "--page", "127.0.0.1:0", "--input", clip, "--strategy", strategy, "--packaging", packaging,
    ]);
    const watched = await stage.open(`${ready.page}?buffer=strategy&join=current`);
    await watched.says("live");
    await watched.draws(36);
    const found = await watched.figures();
    assert.equal(found.strategy, strategy);
    assert.equal(found.plan.video[0].packaging, packaging);
    assert.equal(found.video.errors, 0);
    console.log(`${strategy} as ${packaging}: latency median ${found.lately.latency_median.toFixed(3)} s, B shown ${found.byKind.B.shown}`);
    await watched.page.context().close();
    await program.end("SIGINT");
  }
  assert.deepEqual(stage.complaints, []);
});

test("the page recovers from whatever happens, without a reload", { skip, timeout: STORY_MS }, async (context) => {
  const first = await stage.relay("127.0.0.1:0");
  const address = first.ready.listening;
  const link = new Link(address);
  stage.links.push(link);
  const through = await link.listen();
  const page = await stage.page(through);
  const watched = await stage.open(page);
  let relay = first.program;
  /** @type {Awaited<ReturnType<Stage["publisher"]>>} */
  let publisher;

  await context.test("nothing is published yet", async () => {
    await watched.says("waiting");
    publisher = await stage.publisher(address, clip);
    await watched.says("live");
    await watched.draws(24);
  });

  await context.test("the publisher stops and starts", async () => {
    await publisher.end("SIGINT");
    await watched.says("ended");
    publisher = await stage.publisher(address, clip);
    await watched.says("live");
    await watched.draws(24);
  });

  await context.test("the publisher vanishes and comes back with another picture", async () => {
    await publisher.end();
    publisher = await stage.publisher(address, otherClip, ["--packaging", "loc"]);
    await watched.page.waitForFunction("document.getElementById('canvas').width === 320");
    await watched.draws(24);
  });

  await context.test("the link is cut for five seconds", async () => {
    const before = await watched.figures();
    const began = Date.now();
    link.isCut = true;
    await new Promise((resolve) => setTimeout(resolve, 5000));
    link.isCut = false;
    await watched.draws(48);
    const { connection } = await watched.figures();
    const [more, losses] = [connection.watchdogs - before.connection.watchdogs, connection.reconnects - before.connection.reconnects];
    console.log(`after the cut: ${more} second connections, ${losses} losses`);
    assert.ok(more > 0, "after a while without an object a second connection was tried");
    await isAtLiveEdge(watched, before, began);
  });

  await context.test("the relay is restarted in mid-stream", async () => {
    const before = await watched.figures();
    const began = Date.now();
    await relay.end();
    await publisher.end();
    relay = (await stage.relay(address)).program;
    publisher = await stage.publisher(address, clip);
    await watched.draws(48);
    await isAtLiveEdge(watched, before, began);
  });

  await context.test("the page is hidden and shown again", async () => {
    const { dropped } = await watched.figures();
    await watched.page.evaluate("Object.defineProperty(document, 'hidden', { value: true, configurable: true }); document.dispatchEvent(new Event('visibilitychange'))");
    await watched.page.waitForFunction(`weir.figures().dropped.hidden > ${dropped.hidden}`);
    await watched.page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))");
    await watched.draws(24);
  });

  await context.test("the relay goes away and names another", async () => {
    const next = await stage.relay("127.0.0.1:0");
    const successor = `https://${next.ready.listening}/`;
    await relay.end();
    await publisher.end();
    relay = (await stage.relay(address, ["--set", `drain.successor=${successor}`])).program;
    // This one goes to the other relay as well.
    publisher = await stage.publisher(address, clip);
    await watched.draws(48);
    relay.child.kill("SIGTERM");
    await watched.page.waitForFunction("weir.figures().connection.goAways > 0");
    await watched.page.waitForFunction("/GOAWAY [1-9]/.test(document.getElementById('overlay').textContent)");
    await relay.ended;
    await watched.draws(48);
  });

  const grave = stage.complaints.filter((complaint) => !OF_THE_STORY.test(complaint));
  assert.deepEqual(grave, []);
  stage.complaints.length = 0;
});

/**
 * Checks that missed media is not played afterwards: the latency is about the same as before the outage.
 *
 * @param {Awaited<ReturnType<Stage["open"]>>} watched
 * @param {any} before its figures before the outage
 * @param {number} began when the outage began, in milliseconds since 1970
 */
async function isAtLiveEdge(watched, before, began) {
  const outage = await watched.longestPause(began);
  const bound = before.latencyNow + Math.max(outage / 2, 1);
  // A busy machine may be later at times. A player that does not skip stays late.
  await watched.page.waitForFunction(`{ const { latencyNow, ageNow } = weir.figures(); latencyNow < ${bound} && ageNow < ${bound}; }`);
  const { latencyNow, ageNow } = await watched.figures();
  console.log(`no picture for ${outage.toFixed(1)} s; latency ${before.latencyNow.toFixed(3)} s before and ${latencyNow.toFixed(3)} s after, age ${ageNow.toFixed(3)} s`);
}

test("two pages and a relay: a camera and a microphone are published, watched and heard in sync, and the picture changes its size", { skip, timeout: STORY_MS }, async () => {
  const { ready } = await stage.weir(["live", "watch", "--page", "127.0.0.1:0", "--no-source"]);
  const publishing = await stage.open(`${ready.page}publish.html`);
  await publishing.page.selectOption("#size", "640x360x600");
  await publishing.page.click("#begin");
  await publishing.says("live");
  const watched = await stage.open(ready.page);
  await watched.says("live");
  await watched.draws(24);
  assert.match(await watched.picture(), /^640x360:/);
  await watched.page.click("#sound");
  // Audio leads: the picture follows it, with less difference than people notice.
  await watched.page.waitForFunction("weir.figures().audio.decoded > 50 && Math.abs(weir.figures().inSync ?? 1) < 0.045");
  const { inSync, audio, lately } = await watched.figures();
  console.log(`camera: latency median ${lately.latency_median.toFixed(3)} s, picture behind sound ${inSync.toFixed(3)} s, ${audio.decoded} pieces of sound`);
  assert.equal(audio.errors, 0);
  await publishing.page.selectOption("#size", "1280x720x1500");
  await watched.page.waitForFunction("document.getElementById('canvas').width === 1280");
  await watched.draws(24);
  if (SCREENSHOTS) await publishing.page.screenshot({ path: join(SCREENSHOTS, "publish.png") });
  await publishing.page.click("#end");
  await watched.says("ended");
  assert.deepEqual(stage.complaints, []);
});

/** Records in `seen` how a page uses connections, cameras and microphones. */
const WITNESS = `if (globalThis.WebTransport && navigator.mediaDevices) {
  globalThis.seen = { transports: [], tracks: [] };
  globalThis.WebTransport = class extends WebTransport {
    constructor(...all) {
      super(...all);
      seen.transports.push(this);
    }
  };
  const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  navigator.mediaDevices.getUserMedia = async (wanted) => {
    const stream = await ask(wanted);
    seen.tracks.push(...stream.getTracks());
    return stream;
  };
}`;

test("a page that publishes sends nothing while nobody watches, where the relay says so, and goes on when somebody does", { skip, timeout: STORY_MS }, async () => {
  const { ready } = await stage.relay("127.0.0.1:0", ["--set", "pauses_publishers=true"]);
  const page = await stage.page(ready.listening);
  const publishing = await stage.open(`${page}publish.html?fake`);
  await publishing.page.click("#begin");
  await publishing.says("live");
  const frames = async () => Number(await publishing.page.evaluate("weir.publisher().counters.frames"));
  // A second without a change, while the source changes thirty times a second.
  const pauses = () => publishing.page.waitForFunction(`{
    const { frames } = weir.publisher().counters;
    if (globalThis.last?.frames !== frames) globalThis.last = { frames, at: performance.now() };
    performance.now() - globalThis.last.at > 1000;
  }`);
  await pauses();
  const before = await frames();
  assert.ok(before < 150, `${before} frames were sent before the relay had answered: five seconds of them are many`);
  for (let watches = 0; watches < 2; watches++) {
    const watched = await stage.open(page);
    await watched.says("live");
    await watched.draws(12);
    // The page closes its session. The relay notices a lost one only later.
    await watched.page.goto("about:blank");
    await pauses();
    await watched.page.context().close();
  }
  await publishing.page.context().close();
});

test("a camera goes on at the next relay when its relay goes away or dies, or at the one that its relay names", { skip, timeout: STORY_MS }, async () => {
  for (const [signal, isNamed] of /** @type {const} */ ([["SIGTERM", false], ["SIGKILL", false], ["SIGTERM", true]])) {
    const second = await stage.relay("127.0.0.1:0");
    const other = `https://${second.ready.listening}/`;
    const first = await stage.relay("127.0.0.1:0", isNamed ? ["--set", `drain.successor=${other}`] : []);
    const page = await stage.page(first.ready.listening + (isNamed ? "" : `/,${other}`));
    const publishing = await stage.open(`${page}publish.html?fake`);
    await publishing.page.click("#begin");
    await publishing.says("live");
    const watched = await stage.open(await stage.page(second.ready.listening));
    const gone = first.program.end(signal);
    await watched.says("live");
    await watched.draws(12);
    await publishing.says("live");
    for (const one of [publishing, watched]) await one.page.context().close();
    await Promise.all([gone, second.program.end("SIGKILL")]);
  }
  const grave = stage.complaints.filter((complaint) => !OF_THE_STORY.test(complaint));
  assert.deepEqual(grave, []);
  stage.complaints.length = 0;
});

test("a camera that the relay refuses is let go with its connection; with a token it goes on from where it was, each time anew", { skip, timeout: STORY_MS }, async () => {
  const key = join(stage.folder, "issuer");
  execFileSync(WEIR, ["token", "key", key], { stdio: "ignore" });
  const token = execFileSync(WEIR, ["token", "sign", "--key", `${key}.pem`, "--put", "live", "--get", "live"]).toString().trim();
  const { ready } = await stage.relay("127.0.0.1:0", ["--set", `auth.jwt.keys=${key}.jwk`]);
  const page = await stage.page(ready.listening);
  const refused = await stage.open(`${page}publish.html`, {}, WITNESS);
  for (let round = 1; round <= 2; round++) {
    await refused.page.click("#begin");
    await refused.says("failed");
    await refused.tells("The relay does not let you publish “live”: a token is needed.");
    assert.equal(await refused.page.evaluate("seen.transports.length"), round);
    const closed = "Promise.all(seen.transports.map(({ closed }) => closed.catch(() => {}))).then(() => true)";
    assert.ok(await refused.page.evaluate(`Promise.race([${closed}, new Promise((resolve) => setTimeout(resolve, ${PATIENCE_MS}))])`), "its sessions are closed");
    assert.deepEqual(await refused.page.evaluate("seen.tracks.map(({ readyState }) => readyState)"), Array(2 * round).fill("ended"));
    assert.equal(await refused.page.isEnabled("#begin"), true);
  }
  await refused.page.context().close();

  const watched = await stage.open(`${page}?token=${token}`);
  await watched.says("waiting");
  let publishing = await stage.open(`${page}publish.html?token=${token}`);
  await publishing.page.selectOption("#size", "640x360x600");
  await publishing.page.click("#begin");
  await publishing.says("live");
  await watched.says("live");
  await watched.draws(24);
  await publishing.page.click("#end");
  await watched.says("ended");
  await publishing.says("stopped");
  await publishing.page.click("#begin");
  await watched.says("live");
  await watched.draws(24);
  await publishing.page.context().close();
  publishing = await stage.open(`${page}publish.html?fake&token=${token}`);
  await publishing.page.selectOption("#size", "1280x720x1500");
  await publishing.page.click("#begin");
  await watched.page.waitForFunction("document.getElementById('canvas').width === 1280");
  await watched.draws(24);
  const groups = /** @type {number[]} */ (await watched.page.evaluate("weir.export().frames.filter(({ kind }) => kind === 'I').map(({ group }) => group)"));
  assert.ok(groups.every((group, place) => place === 0 || group >= groups[place - 1]), `${groups} count on`);
  assert.deepEqual(stage.complaints, []);
  await watched.page.context().close();
  await publishing.page.context().close();
});

test("what is wrong is said in plain words", { skip, timeout: STORY_MS }, async () => {
  const { ready } = await stage.weir(["live", "watch", "--page", "127.0.0.1:0", "--no-source"]);
  const refused = await stage.open(`${ready.page}?relay=${ready.relay}&hash=${"00".repeat(32)}`);
  await refused.tells("its certificate does not match the hash that this page has");
  const absent = await stage.open(`${ready.page}?relay=https://127.0.0.1:9/&hash=${"00".repeat(32)}`);
  await absent.tells("cannot be reached");
  const publishing = await stage.open(`${ready.page}publish.html?fake&relay=${ready.relay}&hash=${"00".repeat(32)}`);
  await publishing.page.click("#begin");
  await publishing.tells("its certificate does not match the hash that this page has");
  assert.equal(await publishing.state(), "failed");
  const empty = await stage.open(ready.page);
  await empty.tells("Nobody publishes this stream yet");
  assert.equal(await empty.state(), "waiting");
  stage.complaints.length = 0;
});
