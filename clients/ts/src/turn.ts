import { backOff } from "./backoff.ts";
import { EdgeHarnessError } from "./error.ts";
import { follow } from "./follow.ts";
import { serverSentEvents } from "./sse.ts";
import { segment, type Transport } from "./transport.ts";
import type { Event, TurnResult } from "./types.ts";

/** Attempts to post a message before the error is thrown. */
const MAX_ATTEMPTS = 8;

/** A message that starts a turn: the request is repeated with the same key until the server responds. */
export interface Post {
  route: "messages" | "steer";
  body: unknown;
  idempotencyKey: string;
}

/**
 * A turn as a stream of events. A loop over it ends when the turn ends, or when it waits for decisions or answers;
 * once they are given, the next loop continues with the events that follow.
 *
 * Nothing is sent before the first loop, or the first call of `result`.
 */
export class Turn implements AsyncIterable<Event> {
  /** The turn's id; `undefined` until the server has accepted the message. */
  id: string | undefined;
  readonly #transport: Transport;
  readonly #session: string;
  readonly #post: Post | undefined;
  readonly #signal: AbortSignal | undefined;
  #last: string | undefined;
  #result: TurnResult | undefined;

  constructor(transport: Transport, session: string, start: Post | { turn: string; after?: string | undefined }, signal?: AbortSignal) {
    this.#transport = transport;
    this.#session = session;
    this.#signal = signal;
    if ("turn" in start) {
      this.id = start.turn;
      this.#last = start.after;
    } else {
      this.#post = start;
    }
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Event> {
    if (this.#result && this.#result.status !== "waiting") return;
    this.#result = undefined;
    if (this.id === undefined) yield* this.#posted();
    if (this.#result) return;
    const events = follow(this.#transport, this.#session, { after: this.#last, signal: this.#signal });
    for await (const { id, event } of events) {
      this.#last = id ?? this.#last;
      if (event.type === "subagent.event" || event.turn !== this.id) continue;
      this.#note(event);
      yield event;
      if (this.#result) return;
    }
  }

  /** Reads the rest of the stream. Returns how the turn ended, or what it waits for. */
  async result(): Promise<TurnResult> {
    for await (const _ of this);
    return this.#result!;
  }

  /** Posts the message and yields the events of the response, until it ends or is cut. */
  async *#posted(): AsyncGenerator<Event> {
    const { route, body, idempotencyKey } = this.#post!;
    for (let failures = 1; ; failures++) {
      try {
        const response = await this.#transport.once("POST", `/v1/sessions/${segment(this.#session)}/${route}`, {
          headers: { accept: "text/event-stream" },
          json: body,
          idempotencyKey,
          signal: this.#signal,
        });
        // A message that waits in the queue has no event here.
        this.id = response.headers.get("x-turn-id") ?? undefined;
        for await (const { id, data } of serverSentEvents(response, this.#signal)) {
          const event = JSON.parse(data) as Event;
          if (event.type === "subagent.event") continue;
          this.id = event.turn;
          this.#last = id ?? this.#last;
          this.#note(event);
          yield event;
          if (this.#result) return;
        }
        if (this.id === undefined) {
          throw new EdgeHarnessError({ code: "connection_lost", detail: "the connection was lost before the first event" });
        }
      } catch (error) {
        const isTransient = error instanceof EdgeHarnessError && error.isTransient;
        if (!isTransient || failures >= MAX_ATTEMPTS) throw error;
        if (this.id === undefined) await backOff(failures, error, this.#signal);
      }
      // From the first event on, the session's own stream continues without a gap.
      if (this.id !== undefined) return;
    }
  }

  /** Keeps the result, if the event ends the turn or says what it waits for. */
  #note(event: Event): void {
    switch (event.type) {
      case "turn.waiting":
        this.#result = { turn_id: event.turn!, status: "waiting", stop_reason: "waiting", reply: null, pending: event.pending };
        break;
      case "turn.completed":
      case "turn.failed":
      case "turn.canceled": {
        const { turn, status, stop_reason, reply, usage } = event;
        this.#result = { turn_id: turn!, status, stop_reason, reply: reply ?? null, usage, pending: [] };
        if (event.type === "turn.failed") this.#result.error = event.error;
      }
    }
  }
}
