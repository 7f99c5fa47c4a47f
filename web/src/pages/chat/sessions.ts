// The list of sessions.
import { EdgeHarnessError, type EdgeHarness, type SessionSummary } from "@edge-harness/client";
import { signal } from "@preact/signals";
import { signOut } from "../../lib/credential.ts";

const PAGE = 30;
/** Changes in quick succession share one refresh. */
const REFRESH_MS = 300;

export class SessionList {
  readonly sessions = signal<SessionSummary[]>([]);
  readonly hasMore = signal(false);
  readonly error = signal<unknown>(null);
  readonly #client: EdgeHarness;
  #cursor: string | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(client: EdgeHarness) {
    this.#client = client;
  }

  /** Reads the newest sessions again, soon. */
  refresh(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      void this.#read(undefined);
    }, REFRESH_MS);
  }

  /** Reads the next page. */
  async more(): Promise<void> {
    await this.#read(this.#cursor);
  }

  async #read(cursor: string | undefined): Promise<void> {
    try {
      const { data, next_cursor } = await this.#client.listSessions({ limit: PAGE, cursor });
      const ids = new Set(data.map(({ id }) => id));
      const others = this.sessions.value.filter(({ id }) => !ids.has(id));
      // A refresh reads only the first page; older sessions that are shown stay.
      const isLonger = cursor === undefined && this.sessions.value.length > PAGE;
      this.sessions.value = cursor === undefined ? [...data, ...(isLonger ? others : [])] : [...others, ...data];
      if (!isLonger) {
        this.#cursor = next_cursor ?? undefined;
        this.hasMore.value = next_cursor !== null;
      }
      this.error.value = null;
    } catch (error) {
      if (error instanceof EdgeHarnessError && error.status === 401) signOut("The key is no longer valid.");
      this.error.value = error;
    }
  }

  async delete(id: string): Promise<void> {
    await this.#client.session(id).delete();
    this.sessions.value = this.sessions.value.filter((session) => session.id !== id);
  }
}
