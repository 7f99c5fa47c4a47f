import { type FeedOptions, followFeed } from "./follow.ts";
import { pages } from "./session.ts";
import { segment, type Transport } from "./transport.ts";
import type { Page, PendingCall, Schemas } from "./types.ts";

/** Selects calls of the inbox. */
export interface PendingFilter {
  user?: string | undefined;
  agent?: string;
  session?: string;
  kind?: Exclude<PendingCall["kind"], "subagent">;
}

/** A change of the inbox, with the id of its event. */
export type PendingEvent =
  | { type: "pending.reset"; id: string | undefined }
  | { type: "pending.added"; id: string | undefined; call: Schemas["InboxCall"] }
  | { type: "pending.removed"; id: string | undefined; call: Schemas["RemovedCall"] };

/** The inbox: the calls of all sessions that wait for a person or a client. */
export class PendingCalls {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Yields the calls that wait, in the order of their last change. */
  list(filter: PendingFilter = {}): AsyncGenerator<Schemas["InboxCall"]> {
    const query = { user: this.#transport.user, ...filter };
    return pages((cursor) => this.#transport.json<Page<Schemas["InboxCall"]>>("GET", "/v1/pending", { query: { ...query, cursor } }));
  }

  /**
   * Yields the changes of the list, across as many connections as it takes. It starts with `pending.reset` and all calls that
   * wait, unless `after` is the id of a recent event. At each `pending.reset`, forget the calls that you have.
   */
  async *events(options: PendingFilter & FeedOptions = {}): AsyncGenerator<PendingEvent> {
    const { after, signal, onConnection, ...filter } = options;
    const query = { user: this.#transport.user, ...filter };
    for await (const { id, name, data } of followFeed(this.#transport, "/v1/pending/events", query, { after, signal, onConnection })) {
      const call = JSON.parse(data);
      if (name === "pending.reset") yield { type: name, id };
      else if (name === "pending.added" || name === "pending.removed") yield { type: name, id, call };
    }
  }

  /** Claims the call of an external tool, or extends the claim. Throws `claimed` while another runner has it. */
  claim(callId: string, claim: Schemas["NewClaim"], session?: string): Promise<PendingCall> {
    const query = { user: this.#transport.user, session };
    return this.#transport.json("POST", `/v1/pending/${segment(callId)}/claim`, { json: claim, query, isRepeatable: true });
  }

  /** Shows the readers of the session how far a claimed call is. */
  async report(callId: string, report: Schemas["RunnerReport"], session?: string): Promise<void> {
    const query = { user: this.#transport.user, session };
    await this.#transport.once("POST", `/v1/pending/${segment(callId)}/progress`, { json: report, query });
  }
}
