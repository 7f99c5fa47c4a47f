// The address of the view: `#/` is a new chat, `#/chat/ID` is a session.
import { signal } from "@preact/signals";

export type Route = { page: "chat"; session: string | null };

export const route = signal<Route>(parse(location.hash));
addEventListener("hashchange", () => (route.value = parse(location.hash)));

function parse(hash: string): Route {
  const session = /^#\/chat\/(.+)$/.exec(hash)?.[1];
  return { page: "chat", session: session === undefined ? null : decoded(session) };
}

/** Decodes a part of an address. Anyone can write an address, so it may be malformed; then it stays as it is. */
export function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Returns the address of a session, or of a new chat. */
export function chatAddress(session: string | null): string {
  return session === null ? "#/" : `#/chat/${encodeURIComponent(session)}`;
}

export function go(address: string): void {
  location.hash = address;
}
