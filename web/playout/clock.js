/**
 * The render clock: Algorithm 1 of the thesis, with the forward snapping of its section 5.1 and a rate to catch up. All
 * times are integers of microseconds.
 */

/** Normal speed, in thousandths. */
const NORMAL_RATE = 1000;

/** Decides when frames are shown. */
export class RenderClock {
  /**
   * Returns a clock that has not started.
   *
   * @param {number | null} snapUs a frame more than this after the last one is shown at once; null: never
   */
  constructor(snapUs) {
    this.snapUs = snapUs;
    /** Local time and media time at which playing resumed.
     * @type {[local: number, media: number] | null} */
    this.resumed = null;
    /** The presentation time of the last shown frame.
     * @type {number | null} */
    this.lastUs = null;
    /** The speed, in thousandths of normal. */
    this.rate = NORMAL_RATE;
  }

  /**
   * Returns how long to wait until the frame with this presentation time is shown; 0 if it is due. The first frame
   * after a start or a pause is due at once.
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
   * Records a shown frame.
   *
   * @param {number} presentationUs
   */
  onShown(presentationUs) {
    this.lastUs = presentationUs;
  }

  /** Stops the clock since the buffer is empty. The next frame starts it again. */
  pause() {
    this.resumed = null;
  }

  /**
   * Delays the following frames.
   *
   * @param {number} byUs
   */
  delay(byUs) {
    if (this.resumed) this.resumed = [this.resumed[0] + byUs, this.resumed[1]];
  }

  /**
   * Continues at another speed.
   *
   * @param {number} nowUs
   * @param {number} rate thousandths of normal speed, at least 1
   */
  setRate(nowUs, rate) {
    const media = this.mediaUs(nowUs);
    if (media !== null) this.resumed = [nowUs, media];
    this.rate = Math.max(1, rate);
  }

  /**
   * Returns the current media time while playing.
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
   * Sets the media time by another clock, that of the audio.
   *
   * @param {number} nowUs
   * @param {number} mediaUs
   */
  steer(nowUs, mediaUs) {
    if (this.resumed) this.resumed = [nowUs, mediaUs];
  }
}
