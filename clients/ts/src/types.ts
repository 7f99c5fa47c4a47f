// The JSON of the HTTP API, under the names of the wire. Later versions of the server may add fields, event types and
// values, so code should ignore those that it does not know.
import type { components } from "./openapi.ts";

/** All types of the server's OpenAPI document. */
export type Schemas = components["schemas"];

export type Problem = Schemas["Problem"];
export type ErrorCode = Schemas["ErrorCode"];
export type Scope = Schemas["Scope"];

export type SessionData = Schemas["Session"];
export type SessionPatch = Schemas["SessionPatch"];
export type NewSession = Schemas["NewSession"];
/** A session in a list. */
export type SessionSummary = Schemas["ListedSession"];
/** Everything that a user interface shows of a session at one moment. */
export type View = Schemas["View"];
export type Task = Schemas["Task"];

export type Message = Schemas["Message"];
export type Part = Schemas["Part"];
export type FileRef = Schemas["FileRef"];
/** A part of a message that is sent: text, or the `ref` of an attachment. */
export type NewPart = Schemas["NewPart"];
/** What may go with the content of a message. */
export type MessageOptions = Omit<Schemas["NewMessage"], "content" | "parts" | "role" | "user">;

export type TurnData = Schemas["Turn"];
export type Reply = Schemas["Reply"];
export type PendingCall = Schemas["PendingCall"];
export type Decision = Schemas["Decision"];
/** The response to a message or decision whose turn continues in the background. */
export type Receipt = Schemas["Accepted"];
/** How a turn ended, or what it waits for. */
export type TurnResult = Pick<Schemas["TurnEnd"], "status" | "stop_reason" | "error"> & {
  turn_id: string;
  reply: Reply | null;
  usage?: Schemas["Usage"];
  pending: PendingCall[];
};

/** An event of a session. `type` says which fields it has. */
export type Event = Schemas["StreamEvent"];
/** The event of one type. */
export type EventOf<Type extends Event["type"]> = Extract<Event, { type: Type }>;

export interface Page<T> {
  data: T[];
  next_cursor: string | null;
}

/** Returns the id of an event, after which a stream can continue; `undefined` for a delta without an id. */
export function eventId(event: Event): string | undefined {
  if ("seq" in event) return String(event.seq);
  return "cursor" in event ? event.cursor : undefined;
}
