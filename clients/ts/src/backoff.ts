import { EdgeHarnessError } from "./error.ts";

const FIRST_MS = 250;
const LONGEST_MS = 10_000;

/** Waits; rejects with the signal's reason when it aborts. */
export function delay(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** Waits before the next attempt: longer after each failure, at least as long as the server asks for. */
export function backOff(failures: number, error: unknown, signal?: AbortSignal): Promise<void> {
  const ms = Math.min(FIRST_MS * 2 ** (failures - 1), LONGEST_MS) * (0.5 + Math.random() / 2);
  const asked = error instanceof EdgeHarnessError ? error.retryAfter : undefined;
  return delay(Math.max(ms, (asked ?? 0) * 1000), signal);
}
