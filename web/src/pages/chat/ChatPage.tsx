import type { EdgeHarness } from "@edge-harness/client";
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { chatAddress, go, route } from "../../lib/route.ts";
import { Chat } from "./Chat.tsx";
import { NewChat } from "./NewChat.tsx";
import { Sidebar } from "./Sidebar.tsx";
import { SessionList } from "./sessions.ts";
import { ChatStore } from "./store.ts";

/** The list of sessions, and the chosen session or a new chat. */
export function ChatPage({ client }: { client: EdgeHarness }) {
  const list = useMemo(() => new SessionList(client), [client]);
  const isOpen = useSignal(false);
  const menu = useRef<HTMLButtonElement>(null);
  const id = route.value.session;
  const store = useMemo(() => (id === null ? null : new ChatStore(client, id, () => list.refresh())), [client, id]);
  useEffect(() => () => store?.close(), [store]);
  useEffect(() => {
    list.refresh();
    const returned = () => document.visibilityState === "visible" && list.refresh();
    document.addEventListener("visibilitychange", returned);
    return () => document.removeEventListener("visibilitychange", returned);
  }, [list]);
  // The open list covers the page, so the focus moves into it, and back when Escape closes it. At once: the next key counts.
  useLayoutEffect(() => {
    if (!isOpen.value) return;
    document.querySelector<HTMLElement>("#sidebar a")?.focus();
    const escape = ({ key }: KeyboardEvent) => {
      if (key !== "Escape") return;
      isOpen.value = false;
      menu.current?.focus();
    };
    addEventListener("keydown", escape);
    return () => removeEventListener("keydown", escape);
  }, [isOpen.value]);

  const title = store?.conversation.value.title ?? list.sessions.value.find((session) => session.id === id)?.title;
  const name = store === null ? "New chat" : title || "Untitled";
  useEffect(() => void (document.title = `${name} · edge-harness`), [name]);

  return (
    <div class={isOpen.value ? "chat-page open" : "chat-page"}>
      <Sidebar list={list} current={id} onChoose={() => (isOpen.value = false)} />
      <div class="scrim" onClick={() => (isOpen.value = false)} />
      <main>
        <header>
          <button type="button" class="quiet menu" ref={menu} aria-controls="sidebar" aria-expanded={isOpen.value} onClick={() => (isOpen.value = !isOpen.value)}>
            <span aria-hidden="true">☰</span><span class="hidden">Sessions</span>
          </button>
          <h1>{name}</h1>
        </header>
        {store === null
          ? <NewChat client={client} onCreated={(created) => go(chatAddress(created))} />
          : <Chat key={store.id} store={store} />}
      </main>
    </div>
  );
}
