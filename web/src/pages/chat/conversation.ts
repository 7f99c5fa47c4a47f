// What the page shows of a session: a fold of its events. The same events give the same conversation, live or years later.
import { eventId, type Event, type EventOf, type FileRef, type Message, type PendingCall, type Task } from "@edge-harness/client";

export type Item =
  | { kind: "user"; key: string; turn: string; text: string; files: FileRef[] }
  | { kind: "assistant"; key: string; turn: string; text: string; isStreaming: boolean; isInterrupted: boolean }
  | { kind: "reasoning"; key: string; turn: string; text: string; isStreaming: boolean }
  | ToolItem
  | { kind: "notice"; key: string; turn?: string; tone: "info" | "error"; text: string; canRetry?: boolean };

/** Longest progress that is kept, in characters. */
const MAX_PROGRESS = 2_000;

export interface ToolItem {
  kind: "tool";
  key: string;
  turn: string;
  name: string;
  /** The arguments; as text while the model writes them. */
  args: unknown;
  status: "writing" | "running" | "waiting" | "ended";
  /** What the call does now, or the end of what it has written so far. */
  progress?: string;
  outcome?: EventOf<"tool.completed">;
  /** How a person decided. */
  decision?: string;
  /** The session of the subagent that runs the call. */
  child?: string;
}

export interface Queued {
  turn: string;
}

/** A subagent that works in the background. */
export interface BackgroundTask {
  id: string;
  session: string;
  agent: string;
  label?: string;
  status: "running" | "waiting" | "completed" | "failed" | "canceled";
  error?: string;
}

export interface Conversation {
  items: Item[];
  turn: { id: string; status: "running" | "waiting" } | null;
  pending: PendingCall[];
  queue: Queued[];
  tasks: Task[];
  background: BackgroundTask[];
  mode: string | null;
  model: string | null;
  title: string | null;
  /** How full the model's context window is. */
  window: { used: number; limit: number } | null;
}

export const EMPTY: Conversation = {
  items: [], turn: null, pending: [], queue: [], tasks: [], background: [], mode: null, model: null, title: null, window: null,
};

/** Returns the conversation after more events. */
export function fold(before: Conversation, events: Event[]): Conversation {
  const next = { ...before, items: [...before.items] };
  for (const event of events) apply(next, event);
  return next;
}

function apply(next: Conversation, event: Event): void {
  switch (event.type) {
    case "session.updated": {
      const changed = event.changed as { title?: string | null };
      if ("title" in changed) next.title = changed.title ?? null;
      break;
    }
    case "mode.changed":
      next.mode = event.mode ?? null;
      if (event.previous) notice(next, event, `The mode is now “${event.mode}”.`);
      break;
    case "model.changed":
      next.model = event.model ?? null;
      break;
    case "task.list_updated":
      next.tasks = event.tasks;
      break;
    case "task.started": {
      const { task, session, agent, label } = event;
      next.background = [...next.background, { id: task, session, agent, label, status: "running" }];
      break;
    }
    case "task.progress":
      changeTask(next, event.task, { status: event.status === "waiting" ? "waiting" : "running" });
      break;
    case "task.completed":
      changeTask(next, event.task, { status: "completed" });
      break;
    case "task.failed":
      changeTask(next, event.task, { status: "failed", error: event.error });
      break;
    case "task.canceled":
      changeTask(next, event.task, { status: "canceled" });
      break;
    case "turn.queued":
      next.queue = [...next.queue.filter(({ turn }) => turn !== event.turn), { turn: event.turn! }];
      break;
    case "turn.started":
      next.turn = { id: event.turn!, status: "running" };
      next.queue = next.queue.filter(({ turn }) => turn !== event.turn);
      next.items.push(userItem(event.message));
      break;
    case "turn.resumed":
      next.turn = { id: event.turn!, status: "running" };
      next.pending = [];
      // The model writes its message again.
      if (!["decided", "answered", "expired", "subagent"].includes(event.reason)) dropUnfinished(next);
      break;
    case "turn.waiting":
      next.turn = { id: event.turn!, status: "waiting" };
      next.pending = event.pending;
      break;
    case "turn.completed":
    case "turn.failed":
    case "turn.canceled":
      end(next, event);
      break;
    case "message.delta":
      write(next, "assistant", event);
      break;
    case "reasoning.delta":
      write(next, "reasoning", event);
      break;
    case "message.completed":
      complete(next, event.message);
      break;
    case "tool.input_delta":
      writeArgs(next, event);
      break;
    case "tool.started":
      startTool(next, event);
      break;
    case "tool.progress":
      showProgress(next, event);
      break;
    case "tool.approval_required":
    case "tool.suspended":
      change(next, event.call_id, { status: "waiting" });
      break;
    case "approval.decided":
      resolved(next, event.call_id, decisionText(event));
      break;
    case "answer.given":
      resolved(next, event.call_id, event.by ? answerText(event.answer) : "expired");
      break;
    case "subagent.started":
      change(next, event.call_id, { child: event.session });
      break;
    case "tool.completed":
      change(next, event.call_id, { status: "ended", outcome: event, ...(event.ran_with === undefined ? {} : { args: event.ran_with }) });
      break;
    case "usage.updated":
      next.window = event.step.window ?? next.window;
      break;
    case "compaction.completed":
      notice(next, event, "A summary replaces older messages in the model’s context.");
      break;
    case "budget.exceeded":
      notice(next, event, `The turn reached its limit (${event.limit}).`);
  }
}

function changeTask(next: Conversation, id: string, changes: Partial<BackgroundTask>): void {
  next.background = next.background.map((task) => (task.id === id ? { ...task, ...changes } : task));
}

function userItem(message: Message): Item {
  const files = message.parts.filter((part) => part.type === "file");
  return { kind: "user", key: message.id, turn: message.turn, text: textOf(message), files };
}

function textOf(message: Message): string {
  return message.parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}

function notice(next: Conversation, event: Event, text: string): void {
  next.items.push({ kind: "notice", key: `notice-${eventId(event)}`, turn: "turn" in event ? event.turn : undefined, tone: "info", text });
}

/** Finds an item from the end, because events are about recent ones. */
function find<Kind extends Item["kind"]>(next: Conversation, kind: Kind, key: string) {
  const index = next.items.findLastIndex((item) => item.kind === kind && item.key === key);
  return { index, item: next.items[index] as Extract<Item, { kind: Kind }> | undefined };
}

function write(next: Conversation, kind: "assistant" | "reasoning", event: EventOf<"message.delta" | "reasoning.delta">): void {
  const { index, item } = find(next, kind, event.id);
  if (item) next.items[index] = { ...item, text: item.text + event.delta };
  else next.items.push({ kind, key: event.id, turn: event.turn, text: event.delta, isStreaming: true, isInterrupted: false });
}

function complete(next: Conversation, message: Message): void {
  const reasoning = message.parts.map((part) => (part.type === "reasoning" ? part.text : "")).join("");
  const { key, turn } = { key: message.id, turn: message.turn };
  if (reasoning) put(next, { kind: "reasoning", key, turn, text: reasoning, isStreaming: false });
  else finishReasoning(next, key);
  const text = textOf(message);
  if (text) put(next, { kind: "assistant", key, turn, text, isStreaming: false, isInterrupted: message.interrupted ?? false });
}

function put(next: Conversation, item: Item): void {
  const { index } = find(next, item.kind, item.key);
  if (index >= 0) next.items[index] = item;
  else next.items.push(item);
}

function finishReasoning(next: Conversation, key: string): void {
  const { index, item } = find(next, "reasoning", key);
  if (item) next.items[index] = { ...item, isStreaming: false };
}

function writeArgs(next: Conversation, event: EventOf<"tool.input_delta">): void {
  const key = `${event.id}#${event.index}`;
  const { index, item } = find(next, "tool", key);
  if (item) next.items[index] = { ...item, args: `${item.args}${event.delta}` };
  else next.items.push({ kind: "tool", key, turn: event.turn, name: event.name, args: event.delta, status: "writing" });
}

function startTool(next: Conversation, event: EventOf<"tool.started">): void {
  next.items = next.items.filter((item) => !(item.kind === "tool" && item.key.startsWith(`${event.message}#`)));
  finishReasoning(next, event.message);
  next.items.push({ kind: "tool", key: event.call_id, turn: event.turn!, name: event.name, args: event.args, status: "running" });
}

function showProgress(next: Conversation, { call_id, output, message }: EventOf<"tool.progress">): void {
  const { item } = find(next, "tool", call_id);
  const progress = message ?? `${item?.progress ?? ""}${output ?? ""}`.slice(-MAX_PROGRESS);
  if (progress) change(next, call_id, { progress });
}

function change(next: Conversation, callId: string, changes: Partial<ToolItem>): void {
  const { index, item } = find(next, "tool", callId);
  if (item) next.items[index] = { ...item, ...changes };
}

function resolved(next: Conversation, callId: string, decision: string | undefined): void {
  next.pending = next.pending.filter(({ call_id }) => call_id !== callId);
  change(next, callId, { status: "running", decision });
}

function decisionText({ decision, reason, by }: EventOf<"approval.decided">): string {
  const words: Record<string, string> = {
    approve: "approved", decline: "declined", always_allow_tool: "always allowed", always_allow_category: "category always allowed",
  };
  const text = words[decision] ?? decision;
  return decision === "decline" && reason ? `${text}: ${reason}` : by ? text : `${text} by the server`;
}

function answerText(answer: unknown): string {
  if (answer === null || typeof answer !== "object") return `answered: ${answer}`;
  if (Array.isArray(answer)) return `answered: ${answer.join(", ")}`;
  const { action, feedback } = answer as { action?: unknown; feedback?: unknown };
  return typeof action === "string" ? [action, feedback].filter(Boolean).join(": ") : "answered";
}

function dropUnfinished(next: Conversation): void {
  const isUnfinished = (item: Item) =>
    ((item.kind === "assistant" || item.kind === "reasoning") && item.isStreaming) || (item.kind === "tool" && item.status === "writing");
  next.items = next.items.filter((item) => !isUnfinished(item));
}

function end(next: Conversation, event: EventOf<"turn.completed" | "turn.failed" | "turn.canceled">): void {
  next.queue = next.queue.filter(({ turn }) => turn !== event.turn);
  if (next.turn?.id === event.turn) {
    dropUnfinished(next);
    next.turn = null;
    next.pending = [];
  }
  const tone = event.type === "turn.failed" ? "error" : "info";
  const text = endText(event);
  if (text === undefined) return;
  const canRetry = event.error?.retryable ?? false;
  next.items.push({ kind: "notice", key: `end-${event.turn}`, turn: event.turn, tone, text, canRetry });
}

function endText(event: EventOf<"turn.completed" | "turn.failed" | "turn.canceled">): string | undefined {
  if (event.type === "turn.failed") return `The turn failed: ${event.error?.message} (${event.error?.code})`;
  // A message that leaves the queue comes with its turn, which never started.
  if (event.type === "turn.canceled") return event.message ? undefined : "Stopped.";
  if (event.stop_reason === "length") return "The reply was cut off at the model’s output limit.";
  if (event.stop_reason === "content_filter") return "The provider filtered the reply.";
  return undefined;
}
