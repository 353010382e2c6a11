// The page for its viewers: by keyboard, on a phone, read aloud, in a browser without a feature, on a machine that was
// suspended. The variable WEIR names the program; without it these tests are skipped. Times are reported and compared
// with each other, but never with a limit.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";

import { STORY_MS, Stage, WEIR } from "./stage.js";

const stage = new Stage();
const skip = WEIR === "" ? "WEIR does not name the program" : false;
const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
/** The page's URL, with a stream. */
let page = "";
/** The page's URL, without a stream. */
let empty = "";

before(async () => {
  if (skip) return;
  page = (await stage.weir(["live", "watch", "--page", "127.0.0.1:0", "--input", stage.clip("640x360", 300)])).ready.page;
  empty = (await stage.weir(["live", "watch", "--page", "127.0.0.1:0", "--no-source"])).ready.page;
});
after(() => stage.end());

/**
 * Returns the findings of an accessibility checker.
 *
 * @param {import("playwright-core").Page} opened
 * @returns {Promise<string[]>}
 */
async function barriers(opened) {
  await opened.addScriptTag({ path: AXE });
  return opened.evaluate(`axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] })
    .then(({ violations }) => violations.map(({ id, nodes }) => id + ": " + nodes.map(({ html }) => html.slice(0, 120)).join(" | ")))`);
}

test("everything can be reached and used by keyboard, and what has the focus is seen", { skip, timeout: STORY_MS }, async () => {
  const watched = await stage.open(page);
  const { page: opened } = watched;
  await watched.says("live");
  /** @type {string[]} */
  const reached = [];
  for (let press = 0; press < 12; press++) {
    await opened.keyboard.press("Tab");
    const { name, outline } = /** @type {{ name: string, outline: number }} */ (await opened.evaluate(`(() => {
      const { activeElement } = document;
      const style = getComputedStyle(activeElement);
      return { name: activeElement.id || activeElement.localName, outline: style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth) };
    })()`));
    if (reached.includes(name) || name === "body") break;
    assert.ok(outline >= 2, `${name} shows that it has the focus`);
    reached.push(name);
  }
  assert.deepEqual(reached, ["publish-link", "screen", "sound", "volume", "join", "buffer", "toggle", "full", "export", "summary"]);

  const pressed = (/** @type {string} */ id) => opened.getAttribute(`#${id}`, "aria-pressed");
  await opened.focus("#sound");
  await opened.keyboard.press("Enter");
  await opened.waitForFunction("document.getElementById('sound').getAttribute('aria-pressed') === 'true'");
  await opened.keyboard.press("m");
  await opened.waitForFunction("document.getElementById('sound').getAttribute('aria-pressed') === 'false'");
  await opened.keyboard.press("o");
  assert.equal(await pressed("toggle"), "false");
  assert.equal(await opened.isVisible("#overlay"), false);
  await opened.click("#screen");
  await opened.keyboard.press("o");
  assert.equal(await pressed("toggle"), "true", "keys work for who clicked the picture");
  await opened.focus("summary");
  await opened.keyboard.press("Enter");
  assert.equal(await opened.isVisible("#details"), true);
  await opened.keyboard.press("o");
  await opened.evaluate("document.activeElement.blur()");
  await opened.keyboard.press("o");
  assert.equal(await pressed("toggle"), "true", "a letter does nothing where the focus is not in the player");
  await opened.focus("#buffer");
  await opened.keyboard.press("ArrowDown");
  assert.notEqual(await opened.inputValue("#buffer"), "adaptive");
  await opened.focus("#export");
  const [saved] = await Promise.all([opened.waitForEvent("download"), opened.keyboard.press("e")]);
  assert.match(saved.suggestedFilename(), /^weir-watch-.*\.json$/);
  await opened.keyboard.press("f");
  await opened.waitForFunction("document.fullscreenElement?.id === 'screen'");
  await opened.keyboard.press("f");
  await opened.waitForFunction("document.fullscreenElement === null");
  await watched.draws(12);
  await opened.context().close();
});

test("sound that is wanted is made by whichever viewer plays, and where it cannot be made the page says so and plays on", { skip, timeout: STORY_MS }, async () => {
  const watched = await stage.open(page);
  const { page: opened } = watched;
  await watched.says("live");
  await opened.click("#sound");
  await opened.waitForFunction("weir.figures().audio.decoded > 20");
  // Another join position replaces the viewer, and its counters start over. The new one receives the P frames of a group at
  // once, of which there are six, so it has to be clear that the counter fell.
  await opened.waitForFunction("weir.figures().byKind.P.received > 24");
  const received = (await watched.figures()).byKind.P.received;
  await opened.selectOption("#join", "current");
  await opened.waitForFunction(`weir.figures().byKind.P.received < ${received}`);
  await opened.waitForFunction("weir.figures().audio.decoded > 20");
  assert.equal(await opened.textContent("#sound"), "Sound on");
  await opened.click("#sound");
  assert.equal(await opened.textContent("#sound"), "Sound off");
  await opened.context().close();

  const slow = await stage.open(page, {}, `
    const { addModule } = AudioWorklet.prototype;
    AudioWorklet.prototype.addModule = function (url) {
      return new Promise((resolve) => { globalThis.goOn = resolve; }).then(() => addModule.call(this, url));
    };
    const { createGain } = BaseAudioContext.prototype;
    BaseAudioContext.prototype.createGain = function () {
      return globalThis.made = createGain.call(this);
    };`);
  await slow.says("live");
  await slow.page.click("#sound");
  await slow.page.waitForFunction("globalThis.goOn");
  await slow.page.click("#sound");
  await slow.page.evaluate("goOn()");
  await slow.page.waitForFunction("globalThis.made");
  assert.deepEqual([await slow.page.textContent("#sound"), await slow.page.evaluate("made.gain.value")], ["Sound off", 0], "who changed their mind hears nothing");
  await slow.page.click("#sound");
  await slow.page.waitForFunction("document.getElementById('sound').textContent === 'Sound on' && made.gain.value > 0");
  await slow.page.context().close();

  const mute = await stage.open(page, {}, "AudioContext.prototype.resume = async () => { throw new Error('there is no loudspeaker'); }");
  await mute.says("live");
  await mute.page.click("#sound");
  await mute.page.waitForFunction("document.getElementById('remark').checkVisibility()");
  assert.equal(await mute.page.textContent("#remark"), "No sound: there is no loudspeaker");
  assert.equal(await mute.page.textContent("#sound"), "Sound off");
  assert.equal(await mute.page.getAttribute("#sound", "aria-pressed"), "false");
  assert.equal(await mute.state(), "live");
  assert.equal(await mute.page.isVisible("#notice"), false);
  await mute.draws(12);
  await mute.page.context().close();
});

test("nothing stands in the way of who has the page read aloud, in light and dark", { skip, timeout: STORY_MS }, async () => {
  for (const colorScheme of /** @type {const} */ (["light", "dark"])) {
    const watched = await stage.open(page, { colorScheme });
    await watched.says("live");
    await watched.page.click("summary");
    assert.deepEqual(await barriers(watched.page), [], `the page that plays, ${colorScheme}`);
    assert.equal(await watched.page.getAttribute("#state", "role"), "status");
    assert.equal(await watched.page.getAttribute("#notice", "role"), "alert");
    await watched.page.context().close();
    const waiting = await stage.open(empty, { colorScheme });
    await waiting.says("waiting");
    assert.deepEqual(await barriers(waiting.page), [], `the page that waits, ${colorScheme}`);
    await waiting.page.context().close();
    const publishing = await stage.open(`${empty}publish.html`, { colorScheme });
    assert.deepEqual(await barriers(publishing.page), [], `the page that publishes, ${colorScheme}`);
    await publishing.page.context().close();
  }
});

test("it fits any window, down to that of a phone, and goes on playing while that changes", { skip, timeout: STORY_MS }, async () => {
  const phone = await stage.open(page, { viewport: { width: 360, height: 740 }, deviceScaleFactor: 3, isMobile: true, hasTouch: true });
  await phone.says("live");
  await phone.page.tap("#sound");
  await phone.page.waitForFunction("document.getElementById('sound').getAttribute('aria-pressed') === 'true'");
  await fits(phone.page, 360);
  await phone.page.setViewportSize({ width: 740, height: 360 });
  await fits(phone.page, 740);
  await phone.draws(12);
  await phone.page.context().close();

  const watched = await stage.open(page);
  await watched.says("live");
  for (const width of [1920, 1001, 999, 640, 320]) {
    await watched.page.setViewportSize({ width, height: 800 });
    await fits(watched.page, width);
    await watched.draws(6);
  }
  // A plot takes its current size when it is next drawn.
  await watched.page.waitForFunction("{ const plot = document.getElementById('plot-latency'); plot.width === Math.round(plot.clientWidth * devicePixelRatio); }");
  await watched.page.context().close();
});

/**
 * @param {import("playwright-core").Page} opened
 * @param {number} width
 */
async function fits(opened, width) {
  const beyond = /** @type {string[]} */ (await opened.evaluate(`[...document.querySelectorAll("body *")]
    .filter((one) => one.getClientRects().length > 0 && one.getBoundingClientRect().right > document.documentElement.clientWidth + 1 && !one.closest(".overlay"))
    .map((one) => one.id || one.localName)`));
  assert.deepEqual(beyond, [], `nothing sticks out at ${width} pixels`);
  assert.equal(await opened.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), true);
}

test("nothing moves but the picture and its figures where less motion is wanted", { skip, timeout: STORY_MS }, async () => {
  const watched = await stage.open(page, { reducedMotion: "reduce" });
  await watched.says("live");
  const moving = await watched.page.evaluate(`[...document.querySelectorAll("*")]
    .filter((one) => { const style = getComputedStyle(one); return style.animationName !== "none" || parseFloat(style.transitionDuration) > 0; }).length`);
  assert.equal(moving, 0);
  await watched.page.context().close();
});

test("a page that stood still for three seconds is at the live edge again, not three seconds behind", { skip, timeout: STORY_MS }, async () => {
  const watched = await stage.open(page);
  await watched.says("live");
  await watched.draws(24);
  const before = await watched.figures();
  await watched.page.evaluate("(() => { const end = performance.now() + 3000; while (performance.now() < end); })()");
  await watched.draws(48);
  // The order of events at the wake-up is random: the page continues at the newest keyframe, skips what its clock
  // counts as past, or fetches missing objects over a second connection. It plays hardly anything of what it missed,
  // since that would keep the delay.
  await watched.page.waitForFunction(`weir.figures().latencyNow < ${before.latencyNow + 1.5}`);
  const { latencyNow, jumps, dropped, connection } = await watched.figures();
  console.log(`latency ${before.latencyNow.toFixed(3)} s before, ${latencyNow.toFixed(3)} s after; ${jumps - before.jumps} jumps, ` +
    `${dropped.behind} frames left out, ${connection.watchdogs} second connections`);
  const [, ...counts] = /^dropped I (\d+)  P (\d+)  B (\d+)$/m.exec((await watched.page.textContent("#overlay")) ?? "") ?? [];
  assert.ok(counts.length === 3 && counts.some((count) => Number(count) > 0), "what was left out is told by kind");
  await watched.page.context().close();
});

test("a browser that lacks something says what, in plain words", { skip, timeout: STORY_MS }, async (context) => {
  await context.test("WebTransport", async () => {
    const watched = await stage.open(page, {}, "delete globalThis.WebTransport");
    await watched.tells("This browser has no WebTransport.");
    assert.equal(await watched.state(), "lost");
    await watched.page.context().close();
  });

  await context.test("WebCodecs", async () => {
    const watched = await stage.open(page, {}, "delete globalThis.VideoDecoder");
    await watched.tells("This browser cannot decode video with WebCodecs.");
    await stays(watched, "lost");
    await watched.page.context().close();
  });

  await context.test("a decoder for the picture", async () => {
    const watched = await stage.open(page, {}, "VideoDecoder.isConfigSupported = async (config) => ({ supported: false, config })");
    await watched.tells("This browser has no decoder for the stream's video (avc1.");
    await stays(watched, "lost");
    await watched.page.context().close();
  });

  await context.test("a decoder for the sound", async () => {
    const watched = await stage.open(page, {}, "AudioDecoder.isConfigSupported = async (config) => ({ supported: false, config })");
    await watched.says("live");
    await watched.draws(24);
    await watched.page.click("summary");
    await watched.page.waitForFunction("document.getElementById('details').textContent.includes('no decoder for the stream\\'s sound (mp4a')");
    await watched.page.context().close();
  });
});

test("a browser that cannot publish says why, in plain words", { skip, timeout: STORY_MS }, async (context) => {
  for (const [lacking, words] of [
    ["WebTransport", "This browser has no WebTransport."],
    ["VideoEncoder", "This browser cannot encode video with WebCodecs."],
    ["MediaStreamTrackProcessor", "This browser does not give pages the frames of a camera"],
  ]) {
    await context.test(lacking, async () => {
      const publishing = await stage.open(`${empty}publish.html`, {}, `delete globalThis.${lacking}`);
      await publishing.tells(words);
      assert.equal(await publishing.state(), "failed");
      assert.equal(await publishing.page.isEnabled("#begin"), false);
      await publishing.page.context().close();
    });
  }

  await context.test("AudioEncoder", async () => {
    const publishing = await stage.open(`${empty}publish.html?namespace=silent`, {}, "delete globalThis.AudioEncoder");
    await publishing.page.click("#begin");
    await publishing.tells("This browser cannot encode audio with WebCodecs. Untick “Publish sound” to publish without sound.");
    await publishing.page.click("#with-sound");
    await publishing.page.click("#begin");
    await publishing.says("live");
    await publishing.page.click("#end");
    await publishing.says("stopped");
    await publishing.page.context().close();
  });

  await context.test("a camera, which is refused", async () => {
    const script = "if (navigator.mediaDevices) navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('Permission denied', 'NotAllowedError'); }";
    const publishing = await stage.open(`${empty}publish.html`, {}, script);
    await publishing.page.click("#begin");
    await publishing.tells("The browser did not allow this page to use the camera or the microphone.");
    assert.equal(await publishing.state(), "failed");
    assert.equal(await publishing.page.isEnabled("#begin"), true);
    await publishing.page.context().close();
  });
});

/**
 * Checks that the state does not change a little later, when frames arrive.
 *
 * @param {Awaited<ReturnType<Stage["open"]>>} watched
 * @param {string} state
 */
async function stays(watched, state) {
  await watched.page.waitForFunction("weir.figures().byKind.P.received > 24");
  assert.equal(await watched.state(), state);
  assert.equal(await watched.page.isVisible("#notice"), true);
}

test("no story left a complaint in the console", { skip }, () => {
  assert.deepEqual(stage.complaints, []);
});
