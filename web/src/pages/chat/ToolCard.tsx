import type { EventOf, PendingCall } from "@edge-harness/client";
import { duration, pretty } from "../../lib/format.ts";
import { chatAddress } from "../../lib/route.ts";
import type { ToolItem } from "./conversation.ts";
import { save } from "./save.ts";
import type { ChatStore } from "./store.ts";
import { Waiting } from "./Waiting.tsx";

/** Longest result that is shown, in characters. */
const MAX_SHOWN = 4_000;

/** A tool call: its arguments, its progress, its outcome, and what it asks a person. */
export function ToolCard({ item, pending, store }: { item: ToolItem; pending: PendingCall | undefined; store: ChatStore }) {
  const state = item.outcome === undefined ? item.status : "result" in item.outcome ? "good" : "bad";
  return (
    <div class={`tool-card ${state}`}>
      <details>
        <summary>
          <span class="mark" aria-hidden="true" />
          <code>{item.name}</code> <span class="brief">{brief(item.args)}</span>
          <span class="state">{stateText(item)}</span>
        </summary>
        <p class="label">Arguments</p>
        <pre tabIndex={0}>{pretty(item.args)}</pre>
        {item.child && <p><a href={chatAddress(item.child)}>Session of the subagent</a></p>}
        {item.progress && !item.outcome && <><p class="label">Progress</p><pre tabIndex={0}>{item.progress}</pre></>}
        {item.outcome && <Result outcome={item.outcome} store={store} />}
      </details>
      {item.decision && <p class="note">{item.decision}</p>}
      {pending && <Waiting call={pending} session={store.id} store={store} />}
    </div>
  );
}

function Result({ outcome, store }: { outcome: EventOf<"tool.completed">; store: ChatStore }) {
  const artifact = outcome.outcome === "artifact" ? outcome.result : undefined;
  const isResult = "result" in outcome;
  const file = isResult ? storedFile(outcome.result) : undefined;
  const text = pretty(artifact?.preview ?? (isResult ? outcome.result : outcome.reason));
  return (
    <>
      <p class="label">{isResult ? "Result" : "Reason"}</p>
      <pre tabIndex={0}>{text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text}</pre>
      {artifact && (
        <button type="button" onClick={() => store.attempt(() => save(store.session, artifact.ref, `${artifact.ref}.txt`))}>Download all of it</button>
      )}
      {file && <button type="button" onClick={() => store.attempt(() => save(store.session, file.ref, file.name))}>Download {file.name}</button>}
    </>
  );
}

/** Returns the file that a tool has stored, such as an image. */
function storedFile(result: unknown): { ref: string; name: string } | undefined {
  if (result === null || typeof result !== "object" || !("file" in result)) return undefined;
  const file = result.file;
  if (file === null || typeof file !== "object" || !("ref" in file) || typeof file.ref !== "string") return undefined;
  return { ref: file.ref, name: "name" in file && typeof file.name === "string" ? file.name : file.ref };
}

/** Returns the arguments on one line: the texts among them, which say most, or else all. */
function brief(args: unknown): string {
  if (args === null || typeof args !== "object") return pretty(args);
  const values = Object.values(args);
  const texts = values.filter((value) => typeof value === "string");
  return texts.length > 0 ? texts.join(" · ") : values.map((value) => JSON.stringify(value)).join(" · ");
}

function stateText({ status, outcome }: ToolItem): string {
  if (status === "writing") return "preparing";
  if (outcome === undefined) return status === "waiting" ? "waits for you" : "running";
  if (outcome.outcome === "denied") return `denied (${outcome.denied})`;
  const time = duration(outcome.elapsed_ms);
  return "result" in outcome ? time : `${outcome.outcome} ${time}`;
}
