// The key with which the page calls the server: kept for this tab, or on this device if the user wants so.
import { EdgeHarness } from "@edge-harness/client";
import { computed, signal } from "@preact/signals";
import { decoded } from "./route.ts";

const NAME = "edge-harness.key";

/** The key; `null` if the user has to enter one. */
const key = signal(keyOfAddress() ?? sessionStorage.getItem(NAME) ?? localStorage.getItem(NAME));

/** Why the user has to enter a key again. */
export const refusal = signal<string | null>(null);

/** The client with the current key. */
export const client = computed(() => (key.value === null ? null : connect(key.value)));

export function connect(key: string): EdgeHarness {
  return new EdgeHarness({ url: location.origin, key });
}

/** Keeps a key that works. */
export function signIn(value: string, remember: boolean): void {
  forget();
  (remember ? localStorage : sessionStorage).setItem(NAME, value);
  refusal.value = null;
  key.value = value;
}

/** Removes the key from this device. */
export function signOut(reason: string | null = null): void {
  forget();
  refusal.value = reason;
  key.value = null;
}

function forget(): void {
  sessionStorage.removeItem(NAME);
  localStorage.removeItem(NAME);
}

/**
 * Takes the key from an address such as `http://localhost:8787/#key=…`, which `make dev` prints, and removes it from the
 * address. On other hosts it is ignored, because a link must not sign anyone in.
 */
function keyOfAddress(): string | null {
  const given = /^#key=(.+)$/.exec(location.hash)?.[1];
  if (given === undefined) return null;
  history.replaceState(null, "", location.pathname);
  if (!/^(localhost|127(\.\d+){3}|\[::1\])$/.test(location.hostname)) return null;
  forget();
  const value = decoded(given);
  sessionStorage.setItem(NAME, value);
  return value;
}
