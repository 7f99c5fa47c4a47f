/**
 * The JSON of the HTTP API, under the names of the wire. Later versions of the server may add fields, event types and
 * values, so code should ignore those that it does not know.
 */

export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  code: string;
  request_id: string;
  errors?: { pointer: string; detail: string }[];
}

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type SessionStatus = "idle" | "running" | "waiting";
export type TurnStatus = "running" | "waiting" | "completed" | "failed" | "canceled";
export type StopReason =
  | "end" | "length" | "content_filter" | "max_steps" | "max_tool_calls" | "deadline" | "tokens" | "cost"
  | "canceled" | "error" | "waiting";
export type Policy = "allow" | "ask" | "deny";
export type Category = "read" | "edit" | "execute" | "mcp" | "other";
export type Decision = "approve" | "decline" | "always_allow_tool" | "always_allow_category";
export type Scope = "read" | "chat" | "approve" | "admin";

export interface Page<T> {
  data: T[];
  next_cursor: string | null;
}

export interface Usage {
  input_tokens: number;
  output_tokens: number;
  cache_read_tokens: number;
  cache_write_tokens: number;
  reasoning_tokens: number;
  total_tokens: number;
  window?: { used: number; limit: number };
}

export interface Budget {
  max_steps?: number;
  max_tool_calls?: number;
  timeout_s?: number;
  tool_timeout_s?: number;
  max_reflections?: number;
  max_tokens?: number;
  max_cost_usd?: number;
}

export type Rule = Policy | { policy: Policy; by?: "user" };

export interface Rules {
  default?: Rule;
  categories?: Partial<Record<Category, Rule>>;
  tools?: Record<string, Rule>;
  patterns?: { tool?: string; pattern: string; policy: Policy; by?: "user" }[];
  yolo?: boolean;
}

/** A session in a list. */
export interface SessionSummary {
  id: string;
  agent: string;
  user: string;
  title: string | null;
  /** In a list, a running session is `idle`. */
  status: SessionStatus;
  /** The number of calls that wait. */
  pending: number;
  created_at: string;
  updated_at: string;
}

export interface SessionData extends Omit<SessionSummary, "pending"> {
  title_pinned: boolean;
  mode: string | null;
  model: string | null;
  usage: Usage;
  cost_usd?: number;
  current_turn?: string | null;
  pending: PendingCall[];
  queue: { id: string; turn: string; position: number }[];
  metadata: Record<string, Json>;
  state: Record<string, Json>;
  permissions: Rules & { grants?: Json };
  budget: Budget;
  last_seq: number;
}

export interface NewSession {
  id?: string;
  agent?: string;
  user?: string;
  title?: string;
  mode?: string;
  model?: string;
  metadata?: Record<string, Json>;
  budget?: Budget;
  permissions?: Rules;
}

/** Changes of a session; `null` resets a field, or removes a key. */
export interface SessionPatch {
  title?: string | null;
  metadata?: Record<string, Json>;
  mode?: string | null;
  model?: string | null;
  permissions?: { [Field in keyof Rules]: Rules[Field] | null };
  state?: Record<string, Json>;
}

export interface File {
  ref: string;
  mime_type: string;
  bytes: number;
  name?: string | null;
}

export type Part =
  | { type: "text"; text: string }
  | ({ type: "file" } & File)
  | { type: "reasoning"; text: string }
  | { type: "tool_call"; call_id: string; name: string; args: Json; invalid?: string }
  | ({ type: "tool_result"; call_id: string; name: string } & Outcome);

/** A part of a message that is sent: text, or the `ref` of an attachment. */
export type NewPart = { type: "text"; text: string } | { type: "file"; ref: string };

export interface Message {
  id: string;
  seq: number;
  role: "user" | "assistant" | "tool";
  parts: Part[];
  created_at: string;
  turn: string;
  interrupted?: boolean;
}

/** What may go with the content of a message. */
export interface MessageOptions {
  on_busy?: "queue" | "steer" | "reject";
  budget?: Budget;
  tools?: string[];
  client_tools?: { name: string; description?: string; parameters?: Json }[];
  instructions?: string;
  max_output_tokens?: number;
  think?: "off" | "low" | "medium" | "high";
  output_schema?: Json;
  show_citations?: boolean;
}

export interface Reply {
  id: string;
  text: string;
  parts: Part[];
  output?: Json;
}

export interface TurnError {
  code: string;
  message: string;
  retryable: boolean;
}

/** How a turn ended, or what it waits for. */
export interface TurnResult {
  turn_id: string;
  status: TurnStatus;
  stop_reason: StopReason;
  reply: Reply | null;
  usage?: Usage;
  pending: PendingCall[];
  error?: TurnError;
}

/** The response to a message or decision whose turn continues in the background. */
export interface Receipt {
  turn_id: string;
  status: TurnStatus;
}

export type Outcome = {
  outcome: "result" | "artifact" | "timeout" | "failure" | "denied" | "unknown";
  result?: Json;
  reason?: string;
  denied?: string;
  retryable?: boolean;
};

export interface Call extends Partial<Outcome> {
  call_id: string;
  name: string;
  args: Json;
  elapsed_ms?: number;
}

/** A turn as `GET …/turns/{turn}` returns it. */
export interface TurnData extends Omit<TurnResult, "turn_id"> {
  id: string;
  steps: number;
  calls: Call[];
  omitted_calls?: number;
  budget: Budget;
  model?: string | null;
  cost_usd?: number;
  queue_position?: number;
  started_at?: string | null;
  ended_at?: string | null;
}

export interface PendingCall {
  call_id: string;
  turn: string;
  epoch: number;
  kind: "approval" | "question" | "plan" | "external" | "subagent";
  name: string;
  category: Category;
  args: Json;
  args_hash: string;
  /** What to show to the person or client that answers; absent for an `approval`. */
  payload?: Json;
  /** `approver`: to approve the call, a key or token needs the scope `approve`. */
  by?: "approver";
  asked_at: string;
  expires_at: string;
}

export interface Task {
  id: string;
  content: string;
  status: "pending" | "in_progress" | "completed";
  active_form?: string;
}

/** Everything that a user interface shows of a session at one moment. */
export interface View {
  /** The event id of this moment, to follow the session from here. */
  cursor: string;
  session: SessionData;
  running: boolean;
  current_turn: { id: string; status: TurnStatus; started_at: string; deadline: string; steps: number; usage: Usage } | null;
  current_message: { id: string; turn: string; text: string } | null;
  active_tools: { call_id: string; name: string; args: Json; status: "pending" | "running" | "waiting"; started_at: string }[];
  pending: PendingCall[];
  queue: SessionData["queue"];
  tasks: Task[];
  usage: Usage;
  cost_usd?: number;
  window: { messages: number; tokens: number };
  last_error?: TurnError;
}

interface TurnEnd {
  status: TurnStatus;
  stop_reason: StopReason;
  reply?: Reply | null;
  usage: Usage;
  cost_usd?: number;
}

/** The fields of each type of record. */
interface Records {
  "session.created": { session: string; agent: string; user: string; forked_from?: string };
  "session.updated": { changed: Partial<SessionData> };
  "mode.changed": { mode?: string | null; previous?: string | null };
  "model.changed": { model?: string | null; previous?: string | null };
  "state.changed": { changed_keys: string[] };
  "task.list_updated": { tasks: Task[] };
  "turn.queued": { position: number };
  "followup.queued": { count: number };
  "turn.started": { message: Message };
  "turn.resumed": { epoch: number; reason: string };
  "turn.waiting": { pending: PendingCall[] };
  "turn.reflected": { should_continue: boolean; note: string; stub?: boolean };
  "usage.updated": { step: Usage; total: Usage; model?: string; cost_usd?: number };
  "usage.other": { purpose: string; model: string; usage: Usage; cost_usd?: number };
  "budget.exceeded": { limit: StopReason };
  "turn.completed": TurnEnd;
  "turn.failed": TurnEnd & { error: TurnError };
  "turn.canceled": TurnEnd & { message?: Message };
  "turn.sub_step_failed": { step: string; reason: string };
  "judge.completed": { judge: string; score: number; reason: string };
  "message.completed": { message: Message };
  "tool.started": { message: string; call_id: string; name: string; args: Json; invalid?: string; effect: string };
  "tool.completed": Outcome & { call_id: string; name: string; elapsed_ms: number; was_coerced?: boolean; ran_with?: Json };
  "tool.late_result": { call_id: string; name: string; elapsed_ms: number };
  "artifact.stored": { ref: string; bytes: number; mime_type: string; name?: string | null; expires_at?: string };
  "tool.approval_required": { call_id: string; name: string; args: Json; args_hash: string; category: Category; expires_at: string };
  "tool.suspended": { call_id: string; name: string; kind: PendingCall["kind"]; payload: Json; expires_at: string };
  "approval.decided": { call_id: string; name: string; decision: Decision | "expired"; reason?: string; args_hash: string; args?: Json; by?: Json };
  "answer.given": { call_id: string; name: string; answer: Json; by?: Json };
  "subagent.started": { call_id: string; session: string; agent: string; task: string; forked: boolean };
  "subagent.completed": { call_id: string; session: string; agent: string; status: TurnStatus; usage: Usage; cost_usd?: number };
  "compaction.started": { reason: string };
  "compaction.completed": { reason: string; dropped: number; summary_tokens: number; tokens_before: number; tokens_after: number };
  "compaction.failed": { reason: string };
  "memory.flushed": { facts: number };
  "memory.consolidated": { consolidated_at: string };
}

/** The fields of each type of delta: a piece of what the model is writing, which is not stored. */
interface Deltas {
  "message.delta": { id: string; delta: string; cursor: string };
  "reasoning.delta": { id: string; delta: string };
  "tool.input_delta": { id: string; index: number; name: string; delta: string };
}

/** An event of a session. `type` says which fields it has. */
export type Event =
  | { [Type in keyof Records]: { type: Type; seq: number; at: string; turn?: string } & Records[Type] }[keyof Records]
  | { [Type in keyof Deltas]: { type: Type; seq?: undefined; turn: string } & Deltas[Type] }[keyof Deltas];

/** The event of one type. */
export type EventOf<Type extends Event["type"]> = Extract<Event, { type: Type }>;
