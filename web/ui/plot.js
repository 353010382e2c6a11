/**
 * Plots of the last minute on a canvas, in the colours of the page.
 */

/** The length of the time axis, in seconds. */
export const SPAN_S = 60;
/** Points of one line. Beyond this, the oldest is removed. */
const POINTS_MAX = 600;

/**
 * @typedef {object} Line
 * @property {string} label
 * @property {string} color the name of a custom property of the page
 * @property {boolean} [isFilled] whether it is filled, and stacked on the line before
 */

/** Lines over time. */
export class Plot {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {Line[]} lines
   * @param {(value: number) => string} format formats the values at the axis
   * @param {number} leastTop the least upper end of the axis
   */
  constructor(canvas, lines, format, leastTop) {
    this.canvas = canvas;
    this.lines = lines;
    this.format = format;
    this.leastTop = leastTop;
    /** @type {{ at: number, values: (number | null)[] }[]} */
    this.points = [];
  }

  /**
   * @param {number} at in seconds
   * @param {(number | null)[]} values one per line
   */
  add(at, values) {
    this.points.push({ at, values });
    while (this.points.length > POINTS_MAX || (this.points[0] && at - this.points[0].at > SPAN_S)) this.points.shift();
    this.draw();
  }

  /** Draws everything, in the current size of the canvas. */
  draw() {
    const { canvas, points } = this;
    const context = canvas.getContext("2d");
    const { clientWidth, clientHeight } = canvas;
    if (!context || clientWidth === 0) return;
    const scale = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(clientWidth * scale)) canvas.width = Math.round(clientWidth * scale);
    if (canvas.height !== Math.round(clientHeight * scale)) canvas.height = Math.round(clientHeight * scale);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, clientWidth, clientHeight);
    const style = getComputedStyle(canvas);
    const color = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    const box = { left: 58, top: 4, width: clientWidth - 62, height: clientHeight - 22 };
    const stacked = points.map(({ values }) => this.#stack(values));
    const top = niceTop(Math.max(this.leastTop, ...stacked.flat().map((value) => value ?? 0)));
    const y = (/** @type {number} */ value) => box.top + box.height * (1 - Math.min(value, top) / top);
    const end = points.at(-1)?.at ?? 0;
    const x = (/** @type {number} */ at) => box.left + box.width * (1 - (end - at) / SPAN_S);
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = color("--soft");
    context.strokeStyle = color("--line");
    context.lineWidth = 1;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const part of [0, 0.5, 1]) {
      const level = Math.round(y(top * part)) + 0.5;
      context.beginPath();
      context.moveTo(box.left, level);
      context.lineTo(box.left + box.width, level);
      context.stroke();
      context.fillText(this.format(top * part), box.left - 6, Math.max(level, 7));
    }
    this.lines.forEach((line, index) => {
      context.strokeStyle = color(line.color);
      context.fillStyle = color(line.color);
      context.lineWidth = 1.6;
      const path = new Path2D();
      let isOpen = false;
      points.forEach(({ at }, place) => {
        const value = stacked[place][index];
        if (value === null) isOpen = false;
        else if (isOpen) path.lineTo(x(at), y(value));
        else path.moveTo(x(at), y(value));
        isOpen = value !== null;
      });
      context.stroke(path);
      if (line.isFilled && points.length > 1) {
        const area = new Path2D();
        points.forEach(({ at }, place) => area.lineTo(x(at), y(stacked[place][index] ?? 0)));
        [...points].reverse().forEach(({ at }, place) => {
          const below = stacked[points.length - 1 - place];
          area.lineTo(x(at), y(index > 0 ? (below[index - 1] ?? 0) : 0));
        });
        context.globalAlpha = 0.35;
        context.fill(area);
        context.globalAlpha = 1;
      }
    });
    context.textAlign = "left";
    let left = box.left;
    for (const line of this.lines) {
      context.fillStyle = color(line.color);
      context.fillRect(left, clientHeight - 9, 10, 3);
      context.fillStyle = color("--soft");
      context.fillText(line.label, left + 14, clientHeight - 7);
      left += context.measureText(line.label).width + 32;
    }
  }

  /**
   * Stacks the filled lines.
   *
   * @param {(number | null)[]} values
   */
  #stack(values) {
    let below = 0;
    return values.map((value, index) => {
      if (!this.lines[index].isFilled || value === null) return value;
      below += value;
      return below;
    });
  }
}

/**
 * Returns the next round number.
 *
 * @param {number} value
 */
function niceTop(value) {
  const power = 10 ** Math.floor(Math.log10(value || 1));
  return [1, 2, 5, 10].map((factor) => factor * power).find((round) => round >= value) ?? value;
}
