import { useSignal } from "@preact/signals";
import { signOut } from "../../lib/credential.ts";
import { age, message } from "../../lib/format.ts";
import { chatAddress, go } from "../../lib/route.ts";
import type { SessionList } from "./sessions.ts";

/** The list of sessions. */
export function Sidebar({ list, current, onChoose }: { list: SessionList; current: string | null; onChoose: () => void }) {
  const deleting = useSignal<string | null>(null);
  const error = list.error.value;

  async function remove(id: string) {
    deleting.value = null;
    try {
      await list.delete(id);
      if (id === current) go(chatAddress(null));
    } catch (failure) {
      list.error.value = failure;
    }
  }

  return (
    <nav class="sidebar" id="sidebar" aria-label="Sessions">
      <a class="button new-chat" href={chatAddress(null)} onClick={onChoose}>New chat</a>
      {error !== null && <p class="error" role="alert">{message(error)}</p>}
      <ul>
        {list.sessions.value.map(({ id, title, updated_at, pending }) => {
          const name = title || "Untitled";
          return (
            <li key={id} class={id === current ? "current" : ""}>
              <a href={chatAddress(id)} aria-current={id === current ? "page" : undefined} onClick={onChoose}>
                <span class="title">{name}</span>
                <span class="age">{pending > 0 ? "waits for you" : age(updated_at)}</span>
              </a>
              {deleting.value === id
                ? <span class="confirm">
                    <button type="button" class="danger" onClick={() => remove(id)}>Delete</button>
                    <button type="button" class="quiet" onClick={() => (deleting.value = null)}>Keep</button>
                  </span>
                : <button type="button" class="quiet delete" aria-label={`Delete “${name}”`} onClick={() => (deleting.value = id)}>✕</button>}
            </li>
          );
        })}
      </ul>
      {list.hasMore.value && <button type="button" class="quiet" onClick={() => list.more()}>Show more</button>}
      <button type="button" class="quiet sign-out" onClick={() => signOut()}>Forget the key</button>
    </nav>
  );
}
