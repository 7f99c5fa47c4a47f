import { EdgeHarnessError } from "./error.ts";
import { PendingCalls } from "./pending.ts";
import { pages, Session } from "./session.ts";
import { newKey, Transport, type ClientOptions, type RequestOptions } from "./transport.ts";
import type { NewSession, Page, PendingCall, Schemas, Scope, SessionData, SessionSummary } from "./types.ts";

/** A call that waits, and its session. */
export interface WaitingCall {
  session: Session;
  call: PendingCall;
}

/** A client of one server, with one credential. */
export class EdgeHarness {
  readonly #transport: Transport;
  /** The inbox: the calls of all sessions that wait for a person or a client. */
  readonly pending: PendingCalls;

  constructor(options: ClientOptions) {
    this.#transport = new Transport(options);
    this.pending = new PendingCalls(this.#transport);
  }

  /** Returns a session by its id, without a request. */
  session(id: string): Session {
    return new Session(this.#transport, id);
  }

  /** Creates a session. If you already have one with this id, it is returned as it is. */
  async createSession(session: NewSession = {}): Promise<Session> {
    const json = { user: this.#transport.user, ...session };
    const { id } = await this.#transport.json<SessionData>("POST", "/v1/sessions", { json, idempotencyKey: newKey() });
    return this.session(id);
  }

  /** Yields the sessions, newest first. */
  sessions(filter: { user?: string; agent?: string } = {}): AsyncGenerator<SessionSummary> {
    return pages((cursor) => this.listSessions({ ...filter, cursor }));
  }

  /** Returns one page of the sessions, newest first. */
  listSessions(query: { user?: string; agent?: string; limit?: number; cursor?: string } = {}): Promise<Page<SessionSummary>> {
    return this.#transport.json("GET", "/v1/sessions", { query });
  }

  /**
   * Yields the calls that wait for a decision, an answer or a result, in all sessions, newest session first. Calls of subagents
   * come with the session of the subagent. A call that has just begun to wait may be missing for a few seconds, because the
   * list of sessions shows it a little later.
   */
  async *inbox(filter: { user?: string; agent?: string } = {}): AsyncGenerator<WaitingCall> {
    for await (const { id, pending } of this.sessions(filter)) {
      if (pending === 0) continue;
      const session = this.session(id);
      yield* this.#waiting(session, await waitingCalls(session));
    }
  }

  *#waiting(session: Session, calls: PendingCall[]): Generator<WaitingCall> {
    for (const call of calls) {
      if (call.kind !== "subagent") {
        yield { session, call };
        continue;
      }
      const { session: id, pending = [] } = call.payload as { session: string; pending?: PendingCall[] };
      yield* this.#waiting(this.session(id), pending);
    }
  }

  /** Creates a ticket, with which a browser opens one session's event stream or WebSocket without a header. */
  createTicket(session: string, scopes?: Scope[]): Promise<Schemas["Ticket"]> {
    return this.#transport.json("POST", "/v1/tickets", { json: { session, user: this.#transport.user, scopes }, isRepeatable: true });
  }

  /** Sends a request to any route, such as those of files and of memory, and returns the response. */
  request(method: string, path: string, options: RequestOptions = {}): Promise<Response> {
    return this.#transport.request(method, path, options);
  }
}

/** Returns the calls of a session that wait; none if the session was deleted since it was listed. */
async function waitingCalls(session: Session): Promise<PendingCall[]> {
  try {
    return (await session.get()).pending;
  } catch (error) {
    if (error instanceof EdgeHarnessError && error.status === 404) return [];
    throw error;
  }
}
