// The stage of a story in a browser: a relay, publishers, a link that can be cut, a page. All of it ends with the test.

import { execFileSync, spawn } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { createSocket } from "node:dgram";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { chromium } from "playwright-core";

/** The program under test; without it the stories are skipped. */
export const WEIR = process.env.WEIR ?? "";

/** A folder with the page's scripts and styles, such as `web`, which replace those in the program without a build. */
const PAGE = process.env.PAGE ?? "";

/** How long to wait on a busy machine, in milliseconds. Only what hangs takes longer. */
export const PATIENCE_MS = 300_000;

/** How long a whole story may take on a busy machine, in milliseconds. */
export const STORY_MS = 3 * PATIENCE_MS;

/** The time for a program to end, in milliseconds. A relay closes its sessions for up to ten seconds. */
const LEAVE_MS = 15_000;

/** A child process. weir's processes print lines of JSON. */
class Program {
  /**
   * @param {string} command
   * @param {string[]} parameters
   * @param {import("node:child_process").StdioOptions} stdio
   * @param {boolean} isGroup whether it is a process group, which ends as a whole
   */
  constructor(command, parameters, stdio = ["ignore", "pipe", "ignore"], isGroup = false) {
    this.child = spawn(command, parameters, { stdio, detached: isGroup });
    this.isGroup = isGroup;
    /** @type {Promise<number | null>} */
    this.ended = new Promise((resolve) => this.child.once("exit", resolve));
  }

  /** @returns {Promise<any>} its first line of output */
  async ready() {
    const { stdout } = this.child;
    if (!stdout) throw new Error("the program has no output");
    for await (const line of createInterface({ input: stdout })) return JSON.parse(line);
    throw new Error("the program ended without a word");
  }

  /** @param {NodeJS.Signals} [signal] */
  async end(signal = "SIGKILL") {
    this.#kill(signal);
    await this.ended;
  }

  /** @param {NodeJS.Signals} signal */
  #kill(signal) {
    const { pid } = this.child;
    if (this.isGroup && pid !== undefined) process.kill(-pid, signal);
    else this.child.kill(signal);
  }

  /** Asks it to end, with the processes it started, and kills it after a while. */
  async leave() {
    this.#kill("SIGINT");
    const timer = setTimeout(() => this.#kill("SIGKILL"), LEAVE_MS);
    await this.ended;
    clearTimeout(timer);
  }
}

/** Everything of one story. */
export class Stage {
  constructor() {
    this.folder = mkdtempSync(join(tmpdir(), "weir-web-"));
    /** @type {Program[]} */
    this.programs = [];
    /** @type {Link[]} */
    this.links = [];
    /** @type {string[]} errors and warnings of the page */
    this.complaints = [];
  }

  /** Creates a certificate that stays the same when the relay restarts, since browsers accept it by its hash. */
  certificate() {
    const [certificate, key] = [join(this.folder, "certificate.pem"), join(this.folder, "key.pem")];
    execFileSync("openssl", [
      "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "10",
      "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", certificate,
    ], { stdio: "ignore" });
    /** The hash of the certificate, in the form that browsers compare. */
    this.hash = new X509Certificate(readFileSync(certificate)).fingerprint256.replaceAll(":", "").toLowerCase();
    this.files = { certificate, key };
    return this.files;
  }

  /**
   * Encodes a clip once, which all stories share.
   *
   * @param {string} size
   * @param {number} [seconds] its length, enough for the longest story on a busy machine
   * @returns {string}
   */
  clip(size, seconds = 90) {
    const path = join(this.folder, `${size}.mp4`);
    execFileSync("ffmpeg", [
      "-hide_banner", "-loglevel", "error", "-f", "lavfi", "-i", `testsrc2=size=${size}:rate=24`, "-f", "lavfi", "-i",
      "sine=frequency=330:sample_rate=48000", "-t", String(seconds), "-pix_fmt", "yuv420p", "-c:v", "libx264", "-preset", "ultrafast",
      "-b:v", "400k", "-g", "24", "-bf", "3", "-sc_threshold", "0", "-x264-params", "b-pyramid=none", "-c:a", "aac", "-f", "mp4",
      "-movflags", "cmaf+frag_every_frame+empty_moov+default_base_moof", path,
    ]);
    return path;
  }

  /**
   * Starts another program in a process group of its own, so that a whole pipeline ends with it.
   *
   * @param {string} command
   * @param {string[]} parameters
   */
  start(command, parameters) {
    const program = new Program(command, parameters, "ignore", true);
    this.programs.push(program);
    return program;
  }

  /**
   * @param {string[]} parameters of `weir`
   * @param {boolean} [speaks] whether it prints a line when it is ready
   */
  async weir(parameters, speaks = true) {
    const program = new Program(WEIR, parameters);
    this.programs.push(program);
    return { program, ready: speaks ? await program.ready() : undefined };
  }

  /**
   * @param {string} listen
   * @param {string[]} [more]
   */
  async relay(listen, more = []) {
    const { certificate, key } = this.files ?? this.certificate();
    return this.weir(["relay", "--listen", listen, "--cert", certificate, "--key", key, ...more]);
  }

  /**
   * @param {string} relay its address
   * @param {string} clip
   * @param {string[]} [more]
   */
  async publisher(relay, clip, more = []) {
    const { program } = await this.weir(
      ["live", "publish", `moqt://${relay}`, "--insecure", "--input", clip, "--realtime", ...more],
      false,
    );
    return program;
  }

  /**
   * @param {string} relay its address
   * @param {string[]} [more]
   * @returns {Promise<string>} the address of the page
   */
  async page(relay, more = []) {
    const { ready } = await this.weir([
      "live", "watch", "--page", "127.0.0.1:0", "--relay", `https://${relay}/`, "--certificate-hash", this.hash ?? "", ...more,
    ]);
    return ready.page;
  }

  async browser() {
    this.chromium = await chromium.launch({
      executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
      headless: true,
      args: ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"],
    });
    return this.chromium;
  }

  /**
   * Opens a page and collects its errors.
   *
   * @param {string} address
   * @param {import("playwright-core").BrowserContextOptions} [options]
   * @param {string} [script] runs in the browser before the page's own scripts
   */
  async open(address, options = {}, script) {
    const browser = this.chromium ?? (await this.browser());
    // Playwright waits for conditions with eval, which the page's policy forbids. lab.test.js plays with the policy.
    const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, bypassCSP: true, ...options });
    // Not the documents: a browser lets a page connect to a relay on this machine only if the page came from this
    // machine.
    if (PAGE !== "") await context.route(/\.(js|css)$/, (route) => route.fulfill({ path: join(PAGE, new URL(route.request().url()).pathname) }));
    if (script !== undefined) await context.addInitScript({ content: script });
    context.setDefaultTimeout(PATIENCE_MS);
    const page = await context.newPage();
    page.on("console", (message) => {
      if (message.type() === "error") this.complaints.push(message.text());
    });
    page.on("pageerror", (error) => this.complaints.push(String(error.stack)));
    await page.goto(address);
    return new Watched(page);
  }

  async end() {
    await this.chromium?.close();
    for (const link of this.links) link.close();
    await Promise.all(this.programs.map((program) => (program.child.exitCode === null && program.child.signalCode === null ? program.leave() : undefined)));
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** A page that plays. */
class Watched {
  /** @param {import("playwright-core").Page} page */
  constructor(page) {
    this.page = page;
  }

  /** @returns {Promise<any>} its figures */
  figures() {
    return this.page.evaluate("weir.figures()");
  }

  /** @returns {Promise<string>} */
  async state() {
    return (await this.page.textContent("#state")) ?? "";
  }

  /**
   * Waits for a state of the page.
   *
   * @param {string} state
   */
  async says(state) {
    await this.page.waitForFunction(`document.getElementById("state").textContent === ${JSON.stringify(state)}`);
  }

  /**
   * Waits for a text on the picture.
   *
   * @param {string} words
   */
  async tells(words) {
    await this.page.waitForFunction(
      `document.getElementById("notice").checkVisibility() && document.getElementById("notice").textContent.includes(${JSON.stringify(words)})`,
    );
  }

  /**
   * Waits until this many more frames were drawn.
   *
   * @param {number} frames
   */
  async draws(frames) {
    const { video } = await this.figures();
    await this.page.waitForFunction(`weir.figures().video.drawn >= ${video.drawn + frames}`);
  }

  /**
   * @param {number} sinceMs time of day
   * @returns {Promise<number>} the longest time without a new picture since then, in seconds
   */
  async longestPause(sinceMs) {
    const { frames } = /** @type {{ frames: { shown_us: number | null }[] }} */ (await this.page.evaluate("weir.export()"));
    const shown = frames.flatMap(({ shown_us }) => (shown_us === null || shown_us < sinceMs * 1000 ? [] : [shown_us / 1e6]));
    const times = [sinceMs / 1000, ...shown].sort((one, other) => one - other);
    return Math.max(...times.slice(1).map((time, place) => time - times[place]));
  }

  /** @returns {Promise<string>} a digest of the canvas */
  picture() {
    return this.page.evaluate(`(() => {
      const canvas = document.getElementById("canvas");
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      let sum = 0;
      for (let i = 0; i < data.length; i += 61) sum = (sum * 31 + data[i]) | 0;
      return canvas.width + "x" + canvas.height + ":" + sum;
    })()`);
  }
}

/** A link that forwards datagrams between clients and a relay, and can be cut. */
export class Link {
  /** @param {string} relay its address */
  constructor(relay) {
    const [host, port] = relay.split(":");
    this.isCut = false;
    this.front = createSocket("udp4");
    /** @type {Map<string, import("node:dgram").Socket>} a socket towards the relay for each client */
    this.backs = new Map();
    this.front.on("message", (data, client) => {
      const key = `${client.address}:${client.port}`;
      let back = this.backs.get(key);
      if (!back) {
        back = createSocket("udp4");
        back.on("message", (answer) => {
          if (!this.isCut) this.front.send(answer, client.port, client.address);
        });
        this.backs.set(key, back);
      }
      if (!this.isCut) back.send(data, Number(port), host);
    });
  }

  /** @returns {Promise<string>} the address for clients */
  async listen() {
    await new Promise((resolve) => this.front.bind(0, "127.0.0.1", () => resolve(undefined)));
    return `127.0.0.1:${this.front.address().port}`;
  }

  close() {
    this.front.close();
    for (const back of this.backs.values()) back.close();
  }
}
