/**
 * Waits for a promise, for a limited time.
 */

/**
 * Returns the result of a promise, if it is in time.
 *
 * @template T
 * @param {Promise<T>} promise
 * @param {number} ms
 * @param {string} reason of the failure if it is not
 * @returns {Promise<T>}
 */
export async function withTimeout(promise, ms, reason) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(reason)), ms);
  });
  try {
    return await /** @type {Promise<T>} */ (Promise.race([promise, late]));
  } finally {
    clearTimeout(timer);
  }
}
