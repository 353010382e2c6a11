// The memory of processes, from /proc.

import { readFileSync, readdirSync } from "node:fs";

/**
 * @param {number} pid
 * @returns {number} its resident memory in MB, or NaN if it is gone
 */
export function residentMb(pid) {
  try {
    return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024;
  } catch {
    return NaN;
  }
}

/**
 * @param {number} parent
 * @param {string} argument one of the parameters of the process to find
 * @returns {number | undefined} the process that it started
 */
export function childOf(parent, argument) {
  for (const entry of readdirSync("/proc")) {
    if (!/^\d+$/.test(entry)) continue;
    try {
      const status = readFileSync(`/proc/${entry}/status`, "utf8");
      if (Number(/^PPid:\s+(\d+)$/m.exec(status)?.[1]) !== parent) continue;
      if (readFileSync(`/proc/${entry}/cmdline`, "utf8").split("\0").includes(argument)) return Number(entry);
    } catch {
      // The process has ended in the meantime.
    }
  }
  return undefined;
}
