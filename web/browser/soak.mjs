// Plays for as long as it is told (an hour), and says whether memory or latency grew.
//
//     WEIR=target/release/weir node web/browser/soak.mjs [MINUTES]

import { Stage, WEIR } from "./stage.js";

const minutes = Number(process.argv[2] ?? 60);
if (WEIR === "" || !(minutes > 0)) {
  console.error("usage: WEIR=target/release/weir node web/browser/soak.mjs [MINUTES]");
  process.exit(2);
}
const stage = new Stage();
/** @type {{ heap: number, latency: number }[]} */
const samples = [];
try {
  const { ready } = await stage.weir(["live", "watch", "--page", "127.0.0.1:0"]);
  const watched = await stage.open(ready.page);
  await watched.says("live", 60);
  const devtools = await watched.page.context().newCDPSession(watched.page);
  await devtools.send("HeapProfiler.enable");
  for (let minute = 1; minute <= minutes; minute++) {
    await watched.page.waitForTimeout(60_000);
    await devtools.send("HeapProfiler.collectGarbage");
    const { usedSize } = await devtools.send("Runtime.getHeapUsage");
    const { lately, video, connection } = await watched.figures();
    samples.push({ heap: usedSize, latency: lately.latency_median });
    console.log(JSON.stringify({
      minute,
      heap_mb: Number((usedSize / 1e6).toFixed(1)),
      latency_median_s: Number(lately.latency_median.toFixed(3)),
      latency_p95_s: Number(lately.latency_p95.toFixed(3)),
      shown: Number(lately.shown.toFixed(3)),
      freezes: lately.freezes,
      drawn: video.drawn,
      decoder_errors: video.errors,
      reconnects: connection.reconnects,
    }));
  }
  // Half an hour of frames is kept one by one; before that memory grows to what it stays at.
  const quarter = Math.max(1, Math.floor(samples.length / 4));
  const mean = (/** @type {number[]} */ values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const [third, last] = [samples.slice(-2 * quarter, -quarter), samples.slice(-quarter)];
  if (third.length > 0) {
    const grown = (/** @type {"heap" | "latency"} */ key) =>
      mean(last.map((one) => one[key])) / mean(third.map((one) => one[key])) - 1;
    console.log(JSON.stringify({
      summary: "last quarter against the one before",
      heap_grown: Number(grown("heap").toFixed(3)),
      latency_grown: Number(grown("latency").toFixed(3)),
      complaints: stage.complaints,
    }));
  }
} finally {
  await stage.end();
}
