/**
 * When a frame is to be shown: Algorithm 1 of the thesis, with snapping forward (its section 5.1) and a rate for
 * catching up. All times are integers of microseconds.
 */

/** The media's own speed, in thousandths. */
const NORMAL_RATE = 1000;

/** Times the rendering of frames. */
export class RenderClock {
  /**
   * A clock that has not started.
   *
   * @param {number | null} snapUs a frame that comes more than this after the last one is shown at once; null: never
   */
  constructor(snapUs) {
    this.snapUs = snapUs;
    /** Where playing resumed: local time, and media time.
     * @type {[local: number, media: number] | null} */
    this.resumed = null;
    /** Presentation time of the last frame that was shown.
     * @type {number | null} */
    this.lastUs = null;
    /** Thousandths of the media's speed. */
    this.rate = NORMAL_RATE;
  }

  /**
   * How long to wait before the frame with this presentation time is shown; 0 if it is due. The first frame after a start
   * or a pause is due at once.
   *
   * @param {number} nowUs
   * @param {number} presentationUs
   * @returns {number}
   */
  timeUntil(nowUs, presentationUs) {
    const gapUs = this.lastUs === null ? 0 : presentationUs - this.lastUs;
    if (this.snapUs !== null && gapUs > this.snapUs) {
      this.resumed = [nowUs, presentationUs];
      return 0;
    }
    this.resumed ??= [nowUs, presentationUs];
    const [local, media] = this.resumed;
    const due = local + Math.trunc(((presentationUs - media) * NORMAL_RATE) / this.rate);
    return Math.max(0, due - nowUs);
  }

  /**
   * A frame was shown.
   *
   * @param {number} presentationUs
   */
  onShown(presentationUs) {
    this.lastUs = presentationUs;
  }

  /** The buffer ran empty: the next frame sets the clock anew. */
  pause() {
    this.resumed = null;
  }

  /**
   * Whatever comes next is due this much later.
   *
   * @param {number} byUs
   */
  delay(byUs) {
    if (this.resumed) this.resumed = [this.resumed[0] + byUs, this.resumed[1]];
  }

  /**
   * Goes on at another speed.
   *
   * @param {number} nowUs
   * @param {number} rate thousandths of the media's speed, at least 1
   */
  setRate(nowUs, rate) {
    const media = this.mediaUs(nowUs);
    if (media !== null) this.resumed = [nowUs, media];
    this.rate = Math.max(1, rate);
  }

  /**
   * What media time it is, while playing.
   *
   * @param {number} nowUs
   * @returns {number | null}
   */
  mediaUs(nowUs) {
    if (!this.resumed) return null;
    const [local, media] = this.resumed;
    return media + Math.trunc(((nowUs - local) * this.rate) / NORMAL_RATE);
  }

  /**
   * Another clock, that of the sound, says what media time it is.
   *
   * @param {number} nowUs
   * @param {number} mediaUs
   */
  steer(nowUs, mediaUs) {
    if (this.resumed) this.resumed = [nowUs, mediaUs];
  }
}
