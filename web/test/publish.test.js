// The page that publishes, with mocks of its elements: what starts a camera.

import assert from "node:assert/strict";
import { test } from "node:test";

class HTMLElement extends EventTarget {
  value = "1280x720x1500";
  checked = false;
  disabled = false;
  hidden = false;
}

test("an address cannot start a camera, only a click can", async () => {
  /** @type {Map<string, HTMLElement>} */
  const elements = new Map();
  const element = (/** @type {string} */ id) => elements.get(id) ?? elements.set(id, new HTMLElement()).get(id);
  const seen = { cameras: 0, transports: 0, drawings: 0 };
  const kinds = ["HTMLElement", "HTMLVideoElement", "HTMLInputElement", "HTMLSelectElement", "HTMLButtonElement", "HTMLAnchorElement", "HTMLFormElement"];
  const page = {
    ...Object.fromEntries(kinds.map((kind) => [kind, HTMLElement])),
    isSecureContext: true,
    VideoEncoder: class {},
    MediaStreamTrackProcessor: class {},
    WebTransport: class {
      constructor() {
        seen.transports += 1;
      }
    },
    document: {
      getElementById: element,
      createElement() {
        seen.drawings += 1;
        throw new Error("there is no screen");
      },
    },
    navigator: {
      mediaDevices: {
        async getUserMedia() {
          seen.cameras += 1;
          throw new Error("there is no camera");
        },
      },
    },
    setInterval: () => 0,
  };
  for (const [name, value] of Object.entries(page)) Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  for (const more of ["", "&fake"]) {
    const search = `?relay=https://relay.example:4443/&hash=${"00".repeat(32)}&start${more}`;
    Object.defineProperty(globalThis, "location", { value: { search }, configurable: true });
    await import(`../ui/publish.js?${more}`);
    await settled();
    assert.deepEqual(seen, { cameras: 0, transports: 0, drawings: 0 }, search);
    assert.equal(element("begin")?.disabled, false, "the page is ready");
    // The button submits the form.
    element("form")?.dispatchEvent(new Event("submit", { cancelable: true }));
    await settled();
    assert.deepEqual(seen, more ? { cameras: 0, transports: 0, drawings: 1 } : { cameras: 1, transports: 0, drawings: 0 });
    Object.assign(seen, { cameras: 0, transports: 0, drawings: 0 });
    elements.clear();
  }
});

/** Lets everything happen that waits for no time. */
const settled = () => new Promise((resolve) => setImmediate(resolve));
