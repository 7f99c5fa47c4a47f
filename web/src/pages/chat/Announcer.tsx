import { useSignal, type ReadonlySignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Conversation } from "./conversation.ts";

/** Tells users of screen readers what happens, in place of each piece of text. */
export function Announcer({ conversation }: { conversation: ReadonlySignal<Conversation> }) {
  const text = useSignal("");
  const { turn, pending, items } = conversation.value;
  const last = items.at(-1);
  const state = turn?.status ?? "idle";
  const calls = pending.map(({ name, kind }) => `${kind === "approval" ? "Approval needed" : "Answer needed"}: ${name}.`).join(" ");
  useEffect(() => {
    if (state === "running") text.value = "Writing a reply.";
    else if (state === "waiting") text.value = calls;
    else if (last?.kind === "assistant") text.value = `Reply: ${last.text}`;
    else if (last?.kind === "notice") text.value = last.text;
  }, [state, calls]);
  return <div class="hidden" role="status">{text.value}</div>;
}
