import { backOff } from "./backoff.ts";
import { EdgeHarnessError } from "./error.ts";
import { serverSentEvents, type ServerSentEvent } from "./sse.ts";
import { segment, type Transport } from "./transport.ts";
import type { Event } from "./types.ts";

/** How to follow a stream. */
export interface FeedOptions {
  /** The event id after which to start; from the first event if absent. */
  after?: string | undefined;
  /** Ends the stream; the loop throws the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Called when the connection is made, and when it is lost and will be made again. */
  onConnection?: (state: "open" | "lost") => void;
}

/** How to follow the events of a session. */
export interface FollowOptions extends FeedOptions {
  /** `idle`: ends as soon as the session has no turn that runs or waits. Otherwise the stream never ends. */
  until?: "idle";
  /** Whether to yield the events of subagents that work, too. After a reconnect, those of unfinished tasks come again. */
  subagents?: boolean;
}

/** An event with its id; events without an id are not sent again after a reconnect. */
export interface Followed {
  id: string | undefined;
  event: Event;
}

/** Yields each event of a session once, across as many connections as it takes. */
export async function* follow(transport: Transport, session: string, options: FollowOptions): AsyncGenerator<Followed> {
  const { until, subagents } = options;
  const query = { until, subagents: subagents ? "true" : undefined };
  for await (const { id, data } of followFeed(transport, `/v1/sessions/${segment(session)}/events`, query, options)) {
    yield { id, event: JSON.parse(data) as Event };
  }
}

/** Yields each event of a feed once, across as many connections as it takes. With the query `until=idle`, the feed ends. */
export async function* followFeed(
  transport: Transport, path: string, query: Record<string, string | undefined>, options: FeedOptions,
): AsyncGenerator<ServerSentEvent> {
  const { signal, onConnection } = options;
  let last = options.after;
  for (let failures = 1; ; failures++) {
    let failure: unknown;
    try {
      const headers = { accept: "text/event-stream" };
      const response = await transport.once("GET", path, { headers, query: { ...query, after: last }, signal });
      onConnection?.("open");
      for await (const event of serverSentEvents(response, signal)) {
        failures = 0;
        last = event.id ?? last;
        yield event;
      }
      if (query.until === "idle") return;
    } catch (error) {
      // A stream that is refused because of too many requests goes on when the server permits it again.
      if (!(error instanceof EdgeHarnessError && (error.isTransient || error.code === "rate_limited"))) throw error;
      failure = error;
    }
    onConnection?.("lost");
    await backOff(Math.max(failures, 1), failure, signal);
  }
}
