import { EdgeHarnessError } from "@edge-harness/client";

/** Returns a sentence for the user about a failure. */
export function message(error: unknown): string {
  if (!(error instanceof EdgeHarnessError)) return String(error instanceof Error ? error.message : error);
  const fields = error.errors.map(({ pointer, detail }) => `${pointer}: ${detail}`).join("; ");
  const id = error.requestId === undefined ? "" : ` (${error.code}, ${error.requestId})`;
  return `${fields || error.detail}${id}`;
}

/** Returns a time as `just now`, `5 min`, `3 h`, or a date. */
export function age(at: string): string {
  const minutes = Math.floor((Date.now() - Date.parse(at)) / 60_000);
  if (minutes < 1) return "just now";
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h`;
  return new Date(at).toLocaleDateString(undefined, { day: "numeric", month: "short" });
}

export function bytes(count: number): string {
  if (count < 1_000) return `${count} B`;
  return count < 1_000_000 ? `${(count / 1_000).toFixed(1)} kB` : `${(count / 1_000_000).toFixed(1)} MB`;
}

export function duration(ms: number): string {
  return ms < 1_000 ? `${ms} ms` : `${(ms / 1_000).toFixed(1)} s`;
}

/** Returns a value as text: a string as it is, anything else as indented JSON. */
export function pretty(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}
