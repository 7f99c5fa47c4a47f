import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { Announcer } from "./Announcer.tsx";
import { BackgroundTasks } from "./BackgroundTasks.tsx";
import { Composer } from "./Composer.tsx";
import { TaskList } from "./TaskList.tsx";
import { Transcript } from "./Transcript.tsx";
import type { ChatStore } from "./store.ts";

/** Pixels from the end within which the view follows new text. */
const NEAR_END = 80;

/** One session: its conversation, and what the user can do. */
export function Chat({ store }: { store: ChatStore }) {
  const conversation = store.conversation.value;
  const unsent = store.unsent.value;
  const text = useSignal("");
  const scroll = useRef<HTMLDivElement>(null);
  const isAtEnd = useSignal(true);
  const status = conversation.turn?.status ?? "idle";

  const toEnd = () => scroll.current?.scrollTo({ top: scroll.current.scrollHeight });
  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = scroll.current!;
    isAtEnd.value = scrollHeight - scrollTop - clientHeight < NEAR_END;
  };
  // Follows new text, unless the user has scrolled up to read.
  useLayoutEffect(() => {
    if (isAtEnd.peek()) toEnd();
  }, [conversation, unsent]);
  // A smaller window, or an on-screen keyboard, must not hide the end.
  useEffect(() => {
    const observer = new ResizeObserver(() => isAtEnd.peek() && toEnd());
    observer.observe(scroll.current!);
    return () => observer.disconnect();
  }, []);

  const retry = () => {
    const last = conversation.items.findLast((item) => item.kind === "user");
    if (last) void store.send(last.text, last.files.map(({ ref, name }) => ({ ref, name: name ?? ref })), "queue");
  };

  return (
    <>
      <div class="scroll" ref={scroll} onScroll={onScroll} tabIndex={0} role="region" aria-label="Conversation">
        {store.connection.value === "loading" && <p class="status">Loading…</p>}
        <Transcript store={store} onRetry={retry} />
      </div>
      <div class="bottom">
        {!isAtEnd.value && <button type="button" class="to-end" onClick={toEnd}><span aria-hidden="true">↓</span> Newest</button>}
        {store.connection.value === "lost" && store.error.value === null && <p class="status" role="status">The connection is lost. Connecting again…</p>}
        {store.error.value !== null && (
          <p class="error" role="alert">{store.error.value}
            <button type="button" class="quiet" aria-label="Close the error" onClick={() => (store.error.value = null)}>✕</button></p>
        )}
        <TaskList tasks={conversation.tasks} />
        <BackgroundTasks tasks={conversation.background} onCancel={(task) => void store.cancelTask(task)} />
        <Composer text={text} session={() => Promise.resolve(store.session)} status={status} mode={conversation.mode} modes={store.modes.value}
          onMode={(mode) => store.setMode(mode)}
          onSend={(content, files, how) => { isAtEnd.value = true; return store.send(content, files, how); }}
          onStop={() => store.attempt(() => store.session.abort())}
          onError={(error) => (store.error.value = error)} />
        {conversation.window && <p class="window">{usedText(conversation.window)}</p>}
      </div>
      <Announcer conversation={store.conversation} />
    </>
  );
}

function usedText({ used, limit }: { used: number; limit: number }): string {
  return `${used.toLocaleString()} tokens, ${Math.round((used / limit) * 100)} % of the context window`;
}
