import type { FileRef, PendingCall } from "@edge-harness/client";
import { Component, type ComponentChildren } from "preact";
import { Markdown } from "../../components/Markdown.tsx";
import { bytes } from "../../lib/format.ts";
import type { Item } from "./conversation.ts";
import { save } from "./save.ts";
import type { ChatStore } from "./store.ts";
import { ToolCard } from "./ToolCard.tsx";

/** The conversation, oldest item first. */
export function Transcript({ store, onRetry }: { store: ChatStore; onRetry: () => void }) {
  const { items, pending, queue, turn } = store.conversation.value;
  const last = items.at(-1);
  const isThinking = turn?.status === "running" && !(last?.kind === "assistant" && last.isStreaming);
  const unsent = store.unsent.value;
  const isShown = (queued: string) => unsent.some(({ turn }) => turn === queued);
  return (
    <ol class="transcript">
      {items.map((item) => (
        <Row key={`${item.kind}-${item.key}`} item={item} pending={pending.find(({ call_id }) => call_id === item.key)} store={store}
          onRetry={item.kind === "notice" && item.canRetry && item === last ? onRetry : undefined} />
      ))}
      {isThinking && <li class="thinking"><span class="dots" role="img" aria-label="Working"><i /><i /><i /></span></li>}
      {unsent.map(({ key, text, files, turn: queued }) => (
        <li key={key} class="user unsent"><div class="bubble">{text}{files.map((name) => <span class="file">{name}</span>)}</div>
          <QueueNote isQueued={queued !== undefined && turn !== null && turn.id !== queued} onRemove={() => store.dequeue(queued!)} /></li>
      ))}
      {queue.filter(({ turn }) => !isShown(turn)).map(({ turn: queued }) => (
        <li key={queued} class="user unsent"><div class="bubble">A message that was sent elsewhere</div>
          <QueueNote isQueued onRemove={() => store.dequeue(queued)} /></li>
      ))}
    </ol>
  );
}

function QueueNote({ isQueued, onRemove }: { isQueued: boolean; onRemove: () => void }) {
  return <p class="note">{isQueued ? <>In the queue <button type="button" class="quiet" onClick={onRemove}>Remove</button></> : "Sending…"}</p>;
}

interface RowProps {
  item: Item;
  pending: PendingCall | undefined;
  store: ChatStore;
  onRetry: (() => void) | undefined;
}

/** One item; rendered again only when it changes. */
class Row extends Component<RowProps> {
  override shouldComponentUpdate(next: RowProps) {
    return next.item !== this.props.item || next.pending !== this.props.pending || !next.onRetry !== !this.props.onRetry;
  }

  override render() {
    const { item, pending, store, onRetry } = this.props;
    switch (item.kind) {
      case "user":
        return (
          <Entry kind="user" author="You">
            <div class="bubble">{item.text}{item.files.map((file) => <FileLink key={file.ref} file={file} store={store} />)}</div>
          </Entry>
        );
      case "assistant":
        return (
          <Entry kind={item.isStreaming ? "assistant streaming" : "assistant"} author="Agent">
            <Markdown text={item.text} />
            {item.isInterrupted && <p class="note">Interrupted</p>}
          </Entry>
        );
      case "reasoning":
        return (
          <Entry kind="reasoning">
            <details open={item.isStreaming}><summary>{item.isStreaming ? "Thinking…" : "Thoughts"}</summary><Markdown text={item.text} /></details>
          </Entry>
        );
      case "tool":
        return <Entry kind="tool"><ToolCard item={item} pending={pending} store={store} /></Entry>;
      case "notice":
        return (
          <Entry kind={`notice ${item.tone}`}>
            <p>{item.text} {onRetry && <button type="button" onClick={onRetry}>Try again</button>}</p>
          </Entry>
        );
    }
  }
}

function Entry({ kind, author, children }: { kind: string; author?: string; children: ComponentChildren }) {
  return <li class={kind}>{author && <span class="hidden">{author}:</span>}{children}</li>;
}

function FileLink({ file, store }: { file: FileRef; store: ChatStore }) {
  const name = file.name ?? file.ref;
  return (
    <button type="button" class="file" onClick={() => store.attempt(() => save(store.session, file.ref, name))}>
      {name} <small>{bytes(file.bytes)}</small>
    </button>
  );
}
