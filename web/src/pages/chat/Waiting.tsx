// What a waiting call asks a person: an approval, a question, a plan, consent at another server, or the result of a tool that
// no client here runs.
import type { PendingCall } from "@edge-harness/client";
import { useSignal } from "@preact/signals";
import { useId } from "preact/hooks";
import { Markdown } from "../../components/Markdown.tsx";
import { focusMessage } from "../../lib/focus.ts";
import { pretty } from "../../lib/format.ts";
import type { ChatStore } from "./store.ts";

interface Props {
  call: PendingCall;
  /** The session of the call: the shown one, or that of a subagent. */
  session: string;
  store: ChatStore;
}

export function Waiting(props: Props) {
  switch (props.call.kind) {
    case "approval":
      return <Approval {...props} />;
    case "question":
      return "url" in (props.call.payload as object) ? <Page {...props} /> : <Question {...props} />;
    case "auth":
      return <Consent {...props} />;
    case "plan":
      return <Plan {...props} />;
    case "external":
      return <External {...props} />;
    case "subagent":
      return <Subagent {...props} />;
  }
}

/** Runs a request, and disables the buttons in the meantime. Afterwards they are gone, and with them the focus. */
function useRequest() {
  const isBusy = useSignal(false);
  const run = async (request: Promise<boolean>) => {
    isBusy.value = true;
    if (await request) focusMessage();
    isBusy.value = false;
  };
  return { isBusy: isBusy.value, run };
}

function Approval({ call, session, store }: Props) {
  const { isBusy, run } = useRequest();
  const reason = useSignal("");
  const isDeclining = useSignal(false);
  const id = useId();
  const decide = (decision: "approve" | "always_allow_tool" | "always_allow_category") => run(store.decide(session, call, decision));
  const decline = (event: SubmitEvent) => {
    event.preventDefault();
    void run(store.decide(session, call, "decline", reason.value.trim() || undefined));
  };
  return (
    <section class="waiting" aria-label={`Approval of ${call.name}`}>
      <p>May the agent run <code>{call.name}</code> with these arguments?</p>
      <pre tabIndex={0}>{pretty(call.args)}</pre>
      {call.by === "approver" && <p class="note">Approving needs a key with the scope <code>approve</code>.</p>}
      {isDeclining.value
        ? <form class="row" onSubmit={decline}>
            <label class="hidden" for={id}>Reason</label>
            <input id={id} ref={(own) => own?.focus()} placeholder="Reason, which the model reads (optional)" value={reason.value} maxLength={2_000}
              onInput={(event) => (reason.value = event.currentTarget.value)} />
            <button type="submit" class="danger" disabled={isBusy}>Decline</button>
            <button type="button" class="quiet" onClick={() => (isDeclining.value = false)}>Back</button>
          </form>
        : <div class="row">
            <button type="button" class="primary" disabled={isBusy} onClick={() => decide("approve")}>Approve</button>
            <button type="button" disabled={isBusy} onClick={() => (isDeclining.value = true)}>Decline…</button>
            <span class="space" />
            <button type="button" class="quiet" disabled={isBusy} onClick={() => decide("always_allow_tool")}>Always allow {call.name}</button>
            <button type="button" class="quiet" disabled={isBusy} onClick={() => decide("always_allow_category")}>Always allow “{call.category}” tools</button>
          </div>}
    </section>
  );
}

interface QuestionPayload {
  question: string;
  options?: { label: string; description?: string }[];
  selection_mode?: "single" | "multi";
}

function Question({ call, session, store }: Props) {
  const { isBusy, run } = useRequest();
  const { question, options = [], selection_mode } = call.payload as QuestionPayload;
  const isMulti = selection_mode === "multi";
  const text = useSignal("");
  const chosen = useSignal<string[]>([]);
  const id = useId();
  const toggle = (label: string) =>
    (chosen.value = chosen.value.includes(label) ? chosen.value.filter((other) => other !== label) : [...chosen.value, label]);
  const own = text.value.trim();
  const answer = isMulti ? [...chosen.value, ...(own ? [own] : [])] : own;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    void run(store.answer(session, call, answer));
  };
  return (
    <form class="waiting" aria-labelledby={id} onSubmit={submit}>
      <div id={id}><Markdown text={question} /></div>
      <ul class="options">
        {options.map(({ label, description }) => (
          <li key={label}>
            {isMulti
              ? <label class="check"><input type="checkbox" checked={chosen.value.includes(label)} onChange={() => toggle(label)} /> {label}</label>
              : <button type="button" disabled={isBusy} onClick={() => run(store.answer(session, call, label))}>{label}</button>}
            {description && <small>{description}</small>}
          </li>
        ))}
      </ul>
      <div class="row">
        <input aria-label="Your answer" placeholder={options.length > 0 ? "Or write an answer" : "Your answer"} value={text.value} maxLength={10_000}
          onInput={(event) => (text.value = event.currentTarget.value)} />
        <button type="submit" class="primary" disabled={isBusy || answer.length === 0}>Answer</button>
      </div>
    </form>
  );
}

/** A page where the person gives consent. It then shows a code, which continues the call. */
function Consent({ call, session, store }: Props) {
  const { isBusy, run } = useRequest();
  const code = useSignal("");
  const { question, url } = call.payload as { question: string; url: string };
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    void run(store.answer(session, call, { action: "accept", content: { code: code.value.trim() } }));
  };
  return (
    <form class="waiting" aria-label="Consent at another server" onSubmit={submit}>
      <p>{question}</p>
      <p><a href={url} target="_blank" rel="noopener noreferrer">{new URL(url).host}</a></p>
      <div class="row">
        <input aria-label="The code" placeholder="The code" value={code.value} maxLength={100} autocomplete="off"
          onInput={(event) => (code.value = event.currentTarget.value)} />
        <button type="submit" class="primary" disabled={isBusy || code.value.trim() === ""}>Connect</button>
        <button type="button" disabled={isBusy} onClick={() => run(store.answer(session, call, { action: "decline" }))}>Decline</button>
      </div>
    </form>
  );
}

/** A page of another server that the person opens to give input there. */
function Page({ call, session, store }: Props) {
  const { isBusy, run } = useRequest();
  const { question, url } = call.payload as { question: string; url: string };
  const answer = (action: "accept" | "decline") => run(store.answer(session, call, { action }));
  return (
    <section class="waiting" aria-label="A page to open">
      <p>{question}</p>
      <p><a href={url} target="_blank" rel="noopener noreferrer">{new URL(url).host}</a></p>
      <div class="row">
        <button type="button" disabled={isBusy} onClick={() => answer("accept")}>I have done it</button>
        <button type="button" disabled={isBusy} onClick={() => answer("decline")}>Decline</button>
      </div>
    </section>
  );
}

function Plan({ call, session, store }: Props) {
  const { isBusy, run } = useRequest();
  const { plan, path } = call.payload as { plan: string; path: string };
  const feedback = useSignal("");
  const reject = () => run(store.answer(session, call, { action: "rejected", feedback: feedback.value.trim() }));
  return (
    <section class="waiting" aria-label="Approval of a plan">
      <p>Plan <code>{path}</code></p>
      {/* The source: rendered Markdown hides comments and definitions, which the model reads. */}
      <pre class="plan" tabIndex={0} role="region" aria-label="The plan">{plan}</pre>
      <div class="row">
        <button type="button" class="primary" disabled={isBusy} onClick={() => run(store.answer(session, call, { action: "approved" }))}>Approve the plan</button>
        <input aria-label="Feedback" placeholder="What to change" value={feedback.value} onInput={(event) => (feedback.value = event.currentTarget.value)} />
        <button type="button" disabled={isBusy} onClick={reject}>Reject</button>
      </div>
    </section>
  );
}

function External({ call, session, store }: Props) {
  const { isBusy, run } = useRequest();
  const text = useSignal("");
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    void run(store.answer(session, call, text.value));
  };
  return (
    <form class="waiting" aria-label={`Result of ${call.name}`} onSubmit={submit}>
      <p>The tool <code>{call.name}</code> runs in a client, which may still send the result. You can enter it here.</p>
      <pre tabIndex={0}>{pretty(call.payload)}</pre>
      <div class="row">
        <input aria-label="Result" placeholder="Result" value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
        <button type="submit" class="primary" disabled={isBusy || text.value === ""}>Send</button>
      </div>
    </form>
  );
}

/** The calls of a subagent that wait: they are decided in its own session. */
function Subagent({ call, store }: Props) {
  const { session, pending = [] } = call.payload as { session: string; pending?: PendingCall[] };
  return <>{pending.map((own) => <Waiting key={own.call_id} call={own} session={session} store={store} />)}</>;
}
