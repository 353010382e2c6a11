// The pages of reports, one file each, in a real browser: on a laptop, in a narrow window and on a phone, light and
// dark. The variable WEIR names the program; without it the test is skipped. SCREENSHOTS names a folder for pictures.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";

import { STORY_MS, Stage, WEIR } from "./stage.js";

const skip = WEIR === "" ? "WEIR does not name the program" : false;
const SCREENSHOTS = process.env.SCREENSHOTS;

const DEVICES = [
  { device: "laptop", options: { viewport: { width: 1440, height: 900 } } },
  { device: "narrow window", options: { viewport: { width: 1200, height: 800 } } },
  { device: "phone", options: { viewport: { width: 390, height: 844 }, deviceScaleFactor: 3, isMobile: true, hasTouch: true } },
];
/** The least contrast of normal text (WCAG 2.2, 1.4.3). */
const CONTRAST_MIN = 4.5;
/** The smallest text, in pixels of CSS. */
const FONT_PX_MIN = 10;

const stage = new Stage();
/** The reports, by their content. */
const reports = { run: join(stage.folder, "run.html"), limit: join(stage.folder, "limit.html"), lab: join(stage.folder, "lab.html"), "load on HTTP/3": join(stage.folder, "h3.html"),
  "comparison of HTTP/3 servers": join(stage.folder, "h3-compare.html") };

before(async () => {
  if (skip) return;
  const profile = new URL("../../profiles/audio.ini", import.meta.url).pathname;
  // Exit code 1 means that a service level failed, which a busy machine may cause.
  const weir = (/** @type {string[]} */ parameters) => {
    try {
      execFileSync(WEIR, parameters, { stdio: "ignore", timeout: STORY_MS });
    } catch (error) {
      if (/** @type {{ status?: number }} */ (error).status !== 1) throw error;
    }
  };
  weir(["bench", profile, "--subscribers", "20", "--seconds", "3", "--html", reports.run]);
  weir(["bench", "find-max", profile, "--from", "4", "--most", "8", "--settle", "1", "--steady", "1", "--repeats", "1", "--needed", "1",
    "--slo", "loss<100%", "--no-calibration", "--html", reports.limit]);
  weir(["live", "lab", "--profiles", "SPIKE", "--strategies", "skip,weir", "--html", reports.lab]);
  const { certificate, key } = stage.certificate();
  const { ready } = await stage.weir(["h3", "serve", "--listen", "127.0.0.1:0", "--cert", certificate, "--key", key]);
  weir(["h3", "bench", `https://${ready.listening}/15k`, "--insecure", "--duration", "3s", "--html", reports["load on HTTP/3"]]);
  const servers = join(stage.folder, "servers.toml");
  const start = ["{weir}", "h3", "serve", "--listen", "127.0.0.1:{port}", "--cert", "{cert}", "--key", "{key}", "--root", "{root}"];
  const server = (/** @type {string} */ name) =>
    `[[server]]\nname = "${name}"\nready_seconds = 60\nstart = ${JSON.stringify(start)}\nversion = ["{weir}", "--version"]\nnote = "Serves from memory."\n`;
  writeFileSync(servers, `scenarios = ["15k", "1k-short"]\nrounds = 2\nseconds = 1\nwarm_up_seconds = 0.1\n${server("weir")}${server("a-server-with-a-long-name")}`);
  weir(["h3", "compare", servers, "--no-namespace", "--html", reports["comparison of HTTP/3 servers"]]);
});
after(() => stage.end());

for (const [name, path] of Object.entries(reports)) {
  for (const colorScheme of /** @type {const} */ (["light", "dark"])) {
    for (const { device, options } of DEVICES) {
      test(`the report of a ${name} is legible on a ${device}, ${colorScheme}, and asks the network for nothing`, { skip, timeout: STORY_MS }, async () => {
        const { page } = await stage.open("about:blank", { ...options, colorScheme });
        /** @type {string[]} */
        const requests = [];
        page.on("request", (request) => requests.push(request.url()));
        const address = String(pathToFileURL(path));
        await page.goto(address, { waitUntil: "load" });
        const seen = /** @type {ReturnType<typeof look>} */ (await page.evaluate(look));
        if (SCREENSHOTS) await page.screenshot({ path: join(SCREENSHOTS, `report-${name}-${device}-${colorScheme}.png`.replaceAll(/[ /]/g, "-")), fullPage: true });
        await page.context().close();
        assert.deepEqual(requests, [address]);
        assert.deepEqual(stage.complaints, []);
        assert.ok(seen.texts.length > 50 && seen.plots > 0, "there is something to see");
        assert.ok(seen.width <= seen.windowWidth, `it is ${seen.width} wide, in a window of ${seen.windowWidth}`);
        assert.equal(seen.luminance > 0.5, colorScheme === "light", `the page has a luminance of ${seen.luminance}`);
        const faint = seen.texts.filter(({ contrast }) => contrast < CONTRAST_MIN);
        assert.deepEqual(faint, [], "text that hardly differs from what is behind it");
        const small = seen.texts.filter(({ px }) => px < FONT_PX_MIN);
        assert.deepEqual(small, [], "text that is too small");
      });
    }
  }
}

/** Returns what a reader would see. It runs in the page, without access to this file. */
function look() {
  /** @param {string} color in the form that computed styles have */
  const channels = (color) => (color.match(/[\d.]+/g) ?? []).map(Number);
  /** @param {number[]} channels */
  const luminance = ([red, green, blue]) => {
    const linear = [red, green, blue].map((value) => value / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  /** @param {Element | null} element */
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const [red, green, blue, alpha = 1] = channels(getComputedStyle(one).backgroundColor);
      if (alpha > 0.99) return [red, green, blue];
    }
    return [255, 255, 255];
  };
  const texts = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    const text = node.textContent?.trim() ?? "";
    if (!element || text === "" || !element.checkVisibility() || ["SCRIPT", "STYLE"].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const svg = element.closest("svg");
    const color = channels(svg ? style.fill : style.color);
    const [one, other] = [luminance(color), luminance(behind(svg ?? element))].sort((a, b) => b - a);
    // Text in a picture scales with the picture.
    const scale = element instanceof SVGGraphicsElement ? (element.getScreenCTM()?.a ?? 1) : 1;
    texts.push({ text: text.slice(0, 40), contrast: (one + 0.05) / (other + 0.05), px: Number.parseFloat(style.fontSize) * scale });
  }
  return {
    texts,
    plots: document.querySelectorAll("svg, canvas").length,
    width: document.documentElement.scrollWidth,
    windowWidth: window.innerWidth,
    luminance: luminance(behind(document.body)),
  };
}
