import type { Session } from "@edge-harness/client";
import { useSignal, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { focusMessage } from "../../lib/focus.ts";
import { message } from "../../lib/format.ts";
import { choices, type Mode } from "./modes.ts";

interface Attached {
  key: number;
  name: string;
  /** `undefined` while it is uploaded. */
  ref?: string;
}

interface Props {
  text: Signal<string>;
  /** Returns the session that stores the files. */
  session: () => Promise<Session>;
  status: "idle" | "running" | "waiting";
  mode: string | null;
  modes: Mode[];
  onMode: (mode: string) => void;
  onSend: (text: string, files: { ref: string; name: string }[], mode: "queue" | "steer") => Promise<boolean>;
  onStop?: () => void;
  onError: (error: string) => void;
}

let next = 0;

/** Where the user writes: text, files, the mode, and what to do with a message while a turn runs. */
export function Composer({ text, session, status, mode, modes, onMode, onSend, onStop, onError }: Props) {
  const files = useSignal<Attached[]>([]);
  const field = useRef<HTMLTextAreaElement>(null);
  const isUploading = files.value.some(({ ref }) => ref === undefined);
  const isEmpty = text.value.trim() === "" && files.value.length === 0;

  useEffect(focusMessage, []);
  useEffect(() => {
    const own = field.current!;
    own.rows = 1;
    own.rows = Math.min(10, Math.max(1, Math.round((own.scrollHeight - 16) / 24)));
  }, [text.value]);

  async function attach(list: Iterable<File>) {
    for (const file of list) {
      const entry: Attached = { key: next++, name: file.name };
      files.value = [...files.value, entry];
      try {
        const { ref } = await (await session()).attach(file);
        files.value = files.value.map((other) => (other.key === entry.key ? { ...other, ref } : other));
      } catch (failure) {
        remove(entry.key);
        onError(`${file.name}: ${message(failure)}`);
      }
    }
  }

  const remove = (key: number) => (files.value = files.value.filter((file) => file.key !== key));

  async function send(how: "queue" | "steer") {
    if (isEmpty || isUploading) return;
    const sent = { text: text.value, files: files.value };
    text.value = "";
    files.value = [];
    const isSent = await onSend(sent.text.trim(), sent.files as { ref: string; name: string }[], how);
    // Unless the user has written something else in the meantime.
    if (!isSent && text.value === "") {
      text.value = sent.text;
      files.value = sent.files;
    }
  }

  function keyDown(event: KeyboardEvent) {
    // An input method ends a word with Enter, too.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    void send("queue");
  }

  function drop(event: DragEvent) {
    event.preventDefault();
    void attach(event.dataTransfer?.files ?? []);
  }

  function paste(event: ClipboardEvent) {
    const pasted = event.clipboardData?.files;
    if (!pasted?.length) return;
    event.preventDefault();
    void attach(pasted);
  }

  const current = mode ?? (modes.find((own) => own.default) ?? modes[0])?.id ?? null;
  const offered = choices(modes, current);
  return (
    <form class="composer" onSubmit={(event) => { event.preventDefault(); void send("queue"); }} onDragOver={(event) => event.preventDefault()} onDrop={drop}>
      {files.value.length > 0 && (
        <ul class="files" aria-label="Attached files">
          {files.value.map(({ key, name, ref }) => (
            <li key={key}>{name}{ref === undefined && <span class="spinner" role="img" aria-label="is uploaded" />}
              <button type="button" class="quiet" aria-label={`Remove ${name}`} onClick={() => remove(key)}>✕</button></li>
          ))}
        </ul>
      )}
      <label class="hidden" for="message">Message</label>
      <textarea id="message" ref={field} rows={1} value={text.value} onInput={(event) => (text.value = event.currentTarget.value)}
        onKeyDown={keyDown} onPaste={paste} placeholder={placeholder(status)} enterkeyhint="send" />
      <div class="controls">
        <label class="button quiet attach">
          <input type="file" multiple class="hidden" onChange={(event) => { void attach([...(event.currentTarget.files ?? [])]); event.currentTarget.value = ""; }} />
          <span aria-hidden="true">+</span> <span class="word">Attach<span class="hidden"> files</span></span>
        </label>
        {current !== null && (
          <label class="mode"><span class="word">Mode</span> <select value={current} onChange={(event) => onMode(event.currentTarget.value)}>
            {offered.map(({ id, name, description }) => <option key={id} value={id} title={description}>{name ?? id}</option>)}
          </select></label>
        )}
        <span class="space" />
        {status !== "idle" && <button type="button" class="stop" onClick={onStop}><span aria-hidden="true">■</span> <span class="word">Stop</span></button>}
        {status === "running" && !isEmpty && (
          <button type="button" title="Stops the running turn and clears the queue" disabled={isUploading} onClick={() => send("steer")}>Interrupt</button>
        )}
        <button type="submit" class="primary" disabled={isEmpty || isUploading}>{status === "running" ? "Queue" : "Send"}</button>
      </div>
    </form>
  );
}

function placeholder(status: Props["status"]): string {
  if (status === "running") return "Write the next message";
  return status === "waiting" ? "A message declines waiting calls" : "Write a message";
}
