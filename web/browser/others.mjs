// Plays the streams of other publishers in the page, through a relay. Reports for each whether it plays: whether frames
// advance, pixels change, audio is decoded and the page reports no error.
//
//     WEIR=target/release/weir node web/browser/others.mjs PEERS
//
// PEERS is the folder with the programs `moq` (of moq-cli), `moq-pub` and `moq-relay`; missing programs are left out.
// Prints a line for each case, with | between program, how, how objects travel, the failure (empty if none), and a
// note.

import { existsSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";

import { Stage, WEIR } from "./stage.js";

const peers = process.argv[2];
if (WEIR === "" || !peers) {
  console.error("usage: WEIR=target/release/weir node web/browser/others.mjs PEERS");
  process.exit(2);
}
/** A source with one frame in each fragment and one track in each, as those publishers require. */
const SOURCE = "ffmpeg -hide_banner -v error -re -f lavfi -i testsrc2=size=640x360:rate=25 -re -f lavfi -i sine=frequency=330:sample_rate=48000" +
  " -t 120 -pix_fmt yuv420p -c:v libx264 -preset ultrafast -tune zerolatency -g 25 -c:a aac -ac 2 -f mp4" +
  " -movflags cmaf+separate_moof+delay_moov+skip_trailer+frag_every_frame -";
const FRAMES = 75;

const DRAFTS = [22, 21, 20, 19, 18];

/**
 * @typedef {object} Case
 * @property {string} program
 * @property {"weir" | "moq-relay"} relay
 * @property {string} how
 * @property {number} draft of the publisher and the page
 * @property {(url: string) => string} publish returns the publisher's arguments
 */

/**
 * @param {Case["relay"]} relay
 * @param {"https" | "moqt"} scheme
 * @param {number} draft
 * @returns {Case}
 */
function moqCli(relay, scheme, draft) {
  return {
    program: "moq", relay, draft, how: `${scheme}, MSF and CMSF, draft-${draft}`,
    publish: (url) => `--connect ${url.replace("https:", `${scheme}:`)} --connect-tls-insecure ` +
      `--connect-version moq-transport-${draft} --broadcast live import fmp4`,
  };
}

/** @type {Case[]} */
const CASES = [
  ...DRAFTS.flatMap((draft) => [moqCli("weir", "https", draft), moqCli("weir", "moqt", draft), moqCli("moq-relay", "https", draft)]),
  {
    program: "moq-pub", relay: "weir", draft: 18, how: "https, catalogformat-01 and CMSF",
    publish: (url) => `--name live --tls-disable-verify ${url}`,
  },
];

const stage = new Stage();
const { certificate, key } = stage.certificate();
let failed = 0;
try {
  for (const one of CASES) {
    const program = join(peers, one.program);
    if (!existsSync(program) || (one.relay === "moq-relay" && !existsSync(join(peers, "moq-relay")))) continue;
    const result = await play(one, program).catch((error) => ({ reason: String(error.message).split("\n")[0], note: "" }));
    if (result.reason) failed += 1;
    const cells = [one.program, one.how, `publisher → ${one.relay === "weir" ? "weir relay" : one.relay} → browser player`, result.reason, result.note];
    console.log(cells.map((cell) => cell.replaceAll("|", " ")).join("|"));
  }
} finally {
  await stage.end();
}
process.exitCode = failed > 0 ? 1 : 0;

/**
 * @param {Case} one
 * @param {string} program
 */
async function play(one, program) {
  const address = one.relay === "weir" ? (await stage.relay("127.0.0.1:0")).ready.listening : await theirRelay();
  const pipe = stage.start("bash", ["-c", `${SOURCE} | exec "$0" ${one.publish(`https://${address}`)}`, program]);
  const watched = await stage.open(await stage.page(address, ["--draft", `${one.draft}`]));
  // A stream that does not play must not delay the other cases for long.
  watched.page.setDefaultTimeout(40_000);
  try {
    await watched.says("live");
    await watched.page.click("#sound");
    await watched.draws(FRAMES);
    const picture = await watched.picture();
    await watched.draws(12);
    const { audio, video, plan, inSync } = await watched.figures();
    const problems = [
      ...((await watched.picture()) === picture ? ["the picture stands still"] : []),
      ...(audio.decoded === 0 ? ["no sound"] : []),
      ...(video.errors > 0 ? [`${video.errors} errors of the decoder`] : []),
      ...stage.complaints,
    ];
    const sync = inSync === null ? "" : `, video ${Math.round(inSync * 1000)} ms behind audio`;
    const note = `${video.drawn} frames, ${audio.decoded} audio chunks, ${plan.video[0].codec} as ${plan.video[0].packaging}${sync}`;
    return { reason: problems.join("; "), note };
  } finally {
    stage.complaints.length = 0;
    await watched.page.context().close();
    await pipe.end();
  }
}

/** @returns {Promise<string>} where it listens */
async function theirRelay() {
  const port = await freePort();
  stage.start(join(peers, "moq-relay"), [
    "--listen", `127.0.0.1:${port}`, "--listen-tls-cert", certificate, "--listen-tls-key", key, "--auth-public", "**",
  ]);
  return `127.0.0.1:${port}`;
}

/** @returns {Promise<number>} */
function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
      server.close(() => resolve(port));
    });
  });
}
