import type { EdgeHarness, NewPart, Session } from "@edge-harness/client";
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { message } from "../../lib/format.ts";
import { Composer } from "./Composer.tsx";
import { modesOf, type Mode } from "./modes.ts";

const EXAMPLES = [
  { title: "A reply that streams", text: "/slow 40 60" },
  { title: "A tool", text: '/tool current_time {}\n/then /say That is the time.' },
  { title: "A question", text: '/tool ask_user {"question": "Which color?", "options": [{"label": "red"}, {"label": "blue"}]}' },
];

/** Returns whether the model that replies is `demo/echo`, because no provider is configured. */
async function repliesFromDemo(client: EdgeHarness): Promise<boolean> {
  const { data } = await (await client.request("GET", "/v1/models")).json() as { data: { id: string }[] };
  return data.every(({ id }) => !id.includes("/") || id.startsWith("demo/"));
}

/** A chat without a session: the first message or file creates one. */
export function NewChat({ client, onCreated }: { client: EdgeHarness; onCreated: (id: string) => void }) {
  const error = useSignal<string | null>(null);
  const text = useSignal("");
  const mode = useSignal<string | null>(null);
  const modes = useSignal<Mode[]>([]);
  const isDemo = useSignal(false);
  useEffect(() => {
    modesOf(client, "default").then((own) => (modes.value = own), () => {});
    repliesFromDemo(client).then((is) => (isDemo.value = is), () => {});
  }, [client]);
  const created = useRef<Promise<Session>>(undefined);

  /** Creates the session once; again after a failure. */
  function session(): Promise<Session> {
    created.current ??= client.createSession().catch((failure: unknown) => {
      created.current = undefined;
      throw failure;
    });
    return created.current;
  }

  async function send(content: string, files: { ref: string; name: string }[]): Promise<boolean> {
    try {
      const own = await session();
      if (mode.value) await own.update({ mode: mode.value });
      const parts: NewPart[] = files.map(({ ref }) => ({ type: "file", ref }));
      if (content) parts.push({ type: "text", text: content });
      await own.post(parts);
      onCreated(own.id);
      return true;
    } catch (failure) {
      error.value = message(failure);
      return false;
    }
  }

  return (
    <>
      <div class="scroll welcome">
        <h2>What can I do for you?</h2>
        <p>Write a message below.</p>
        {isDemo.value && (
          <>
            <p>No provider is configured, so the built-in model <code>demo/echo</code> replies. It follows lines such as these:</p>
            <ul class="examples">
              {EXAMPLES.map((example) => (
                <li key={example.title}><button type="button" onClick={() => (text.value = example.text)}>{example.title}<code>{example.text}</code></button></li>
              ))}
            </ul>
          </>
        )}
      </div>
      <div class="bottom">
        {error.value && <p class="error" role="alert">{error.value}</p>}
        <Composer text={text} session={session} status="idle" mode={mode.value} modes={modes.value} onMode={(chosen) => (mode.value = chosen)}
          onSend={send} onError={(failure) => (error.value = failure)} />
      </div>
    </>
  );
}
