// One open session: follows its events, and sends what the user does.
import { EdgeHarnessError, type EdgeHarness, type Event, type NewPart, type PendingCall, type Session } from "@edge-harness/client";
import { batch, signal } from "@preact/signals";
import { signOut } from "../../lib/credential.ts";
import { message } from "../../lib/format.ts";
import { EMPTY, fold, type Conversation } from "./conversation.ts";
import { modesOf, type Mode } from "./modes.ts";

/** A message that the server has not confirmed in the log yet. */
export interface Unsent {
  key: string;
  text: string;
  files: string[];
  turn?: string;
}

export class ChatStore {
  readonly id: string;
  readonly session: Session;
  readonly conversation = signal<Conversation>(EMPTY);
  /** Sent messages that are not in the conversation yet: on their way, or in the queue. */
  readonly unsent = signal<Unsent[]>([]);
  /** The modes of the session's agent. */
  readonly modes = signal<Mode[]>([]);
  /** `loading` until the first events are shown. */
  readonly connection = signal<"loading" | "open" | "lost">("loading");
  readonly error = signal<string | null>(null);
  readonly #stop = new AbortController();
  readonly #client: EdgeHarness;
  readonly #onChange: () => void;
  #waiting: Event[] = [];
  #frame: ReturnType<typeof setTimeout> | undefined;

  constructor(client: EdgeHarness, id: string, onChange: () => void) {
    this.id = id;
    this.session = client.session(id);
    this.#client = client;
    this.#onChange = onChange;
    void this.#run();
  }

  close(): void {
    this.#stop.abort();
    clearTimeout(this.#frame);
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    const onConnection = (state: "open" | "lost") => (this.connection.value = state);
    try {
      // While a message is written, other records wait, such as those of the queue.
      const { agent, agent_version, mode, model, title, queue } = await this.session.get();
      // Without them, the page shows the current mode only.
      modesOf(this.#client, agent, agent_version).then((modes) => (this.modes.value = modes), () => {});
      this.conversation.value = { ...EMPTY, mode, model, title, queue };
      for await (const event of this.session.follow({ signal, onConnection })) this.#receive(event);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof EdgeHarnessError && error.status === 401) signOut("The key is no longer valid.");
      this.connection.value = "lost";
      this.error.value = message(error);
    }
  }

  /** Shows the events that arrive within a frame at once: a page that shows each one alone is slow. */
  #receive(event: Event): void {
    this.#waiting.push(event);
    this.#frame ??= setTimeout(() => this.#show(), 16);
  }

  #show(): void {
    const events = this.#waiting;
    this.#waiting = [];
    this.#frame = undefined;
    batch(() => {
      this.conversation.value = fold(this.conversation.value, events);
      const logged = new Set(events.flatMap((event) => (event.type === "turn.started" || event.type === "turn.canceled" ? [event.turn] : [])));
      if (logged.size > 0) this.unsent.value = this.unsent.value.filter(({ turn }) => !turn || !logged.has(turn));
    });
    if (events.some(({ type }) => type.startsWith("turn.") || type === "session.updated")) this.#onChange();
  }

  /** Sends a message. `steer` ends the current turn first. */
  async send(text: string, files: { ref: string; name: string }[], mode: "queue" | "steer"): Promise<boolean> {
    const unsent: Unsent = { key: crypto.getRandomValues(new Uint32Array(2)).join("-"), text, files: files.map(({ name }) => name) };
    this.unsent.value = [...this.unsent.value, unsent];
    const parts: NewPart[] = files.map(({ ref }) => ({ type: "file", ref }));
    if (text) parts.push({ type: "text", text });
    const remove = () => (this.unsent.value = this.unsent.value.filter(({ key }) => key !== unsent.key));
    const sent = await this.attempt(async () => {
      const { turn_id } = await this.session.post(parts, { on_busy: mode });
      // Its events may have arrived before the response.
      const isLogged = this.conversation.value.items.some((item) => item.turn === turn_id);
      if (isLogged) remove();
      else this.unsent.value = this.unsent.value.map((other) => (other.key === unsent.key ? { ...other, turn: turn_id } : other));
    });
    if (!sent) remove();
    return sent;
  }

  /** Removes a message from the queue. */
  dequeue(turn: string): Promise<boolean> {
    return this.attempt(async () => {
      await this.session.dequeue(turn);
      this.unsent.value = this.unsent.value.filter((unsent) => unsent.turn !== turn);
      const { conversation } = this;
      conversation.value = { ...conversation.value, queue: conversation.value.queue.filter((queued) => queued.turn !== turn) };
    });
  }

  /** Switches the mode. */
  setMode(name: string): Promise<boolean> {
    return this.attempt(async () => {
      const { mode } = await this.session.update({ mode: name });
      this.conversation.value = { ...this.conversation.value, mode };
    });
  }

  /** Cancels a background task. The event of its end follows. */
  cancelTask(task: string): Promise<boolean> {
    const path = `/v1/sessions/${encodeURIComponent(this.id)}/tasks/${encodeURIComponent(task)}/cancel`;
    return this.attempt(() => this.#client.request("POST", path));
  }

  /** Decides on a call of this session, or of one of its subagents. */
  decide(session: string, call: PendingCall, decision: Parameters<Session["approve"]>[1], reason?: string): Promise<boolean> {
    return this.#resolve(session, (of) => of.approve(call.call_id, decision, { reason, args_hash: call.args_hash }));
  }

  /** Answers a call of this session, or of one of its subagents. */
  answer(session: string, call: PendingCall, answer: Parameters<Session["answer"]>[1]): Promise<boolean> {
    return this.#resolve(session, (of) => of.answer(call.call_id, answer, { args_hash: call.args_hash }));
  }

  /** Runs a request of the user. Shows its error, and returns whether it succeeded. */
  async attempt(request: () => Promise<unknown>): Promise<boolean> {
    this.error.value = null;
    try {
      await request();
      return true;
    } catch (error) {
      this.error.value = message(error);
      return false;
    }
  }

  async #resolve(session: string, request: (of: Session) => Promise<unknown>): Promise<boolean> {
    const done = await this.attempt(() => request(this.#client.session(session)));
    // After an error, the call may have changed or ended. The decision on a subagent's call is not in this session's log.
    if (!done || session !== this.id) {
      const now = await this.session.get().catch(() => null);
      if (now) this.conversation.value = { ...this.conversation.value, pending: now.pending };
    }
    return done;
  }
}
