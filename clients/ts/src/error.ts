import type { Problem } from "./types.ts";

/** What a problem says; its code may be one of this client. */
type Fields = Partial<Omit<Problem, "code">> & { code?: string };

/** A request that failed: the server's problem, or a connection that could not be made or was lost. */
export class EdgeHarnessError extends Error {
  override readonly name = "EdgeHarnessError";
  /** Stable code, such as `not_found`; `connection_failed` or `connection_lost` if there was no response. */
  readonly code: string;
  /** HTTP status; 0 if there was no response. */
  readonly status: number;
  /** What is wrong, and what to do. */
  readonly detail: string;
  /** Identifies the request in the server's log. */
  readonly requestId: string | undefined;
  /** The wrong fields. */
  readonly errors: { pointer: string; detail: string }[];
  /** Seconds after which the request may be repeated. */
  readonly retryAfter: number | undefined;

  constructor(problem: Fields, retryAfter?: number, options?: ErrorOptions) {
    super(problem.detail ?? problem.title ?? "the request failed", options);
    this.code = problem.code ?? "unknown";
    this.status = problem.status ?? 0;
    this.detail = this.message;
    this.requestId = problem.request_id;
    this.errors = problem.errors ?? [];
    this.retryAfter = retryAfter;
  }

  /** Reads the problem in a response. */
  static async of(response: Response): Promise<EdgeHarnessError> {
    const retryAfter = Number(response.headers.get("retry-after") ?? NaN);
    const seconds = Number.isNaN(retryAfter) ? undefined : retryAfter;
    const { status } = response;
    const request_id = response.headers.get("x-request-id") ?? undefined;
    let text: string;
    try {
      text = await response.text();
    } catch (cause) {
      const detail = "the connection was lost within an error of the server";
      return new EdgeHarnessError({ code: "connection_lost", status, request_id, detail }, seconds, { cause });
    }
    try {
      return new EdgeHarnessError({ request_id, ...(JSON.parse(text) as Fields), status }, seconds);
    } catch {
      // A proxy in between may respond with something else.
      const detail = `the server responded ${status} ${response.statusText}`.trim();
      return new EdgeHarnessError({ status, request_id, detail }, seconds);
    }
  }

  /** Whether the same request may succeed a moment later. */
  get isTransient(): boolean {
    return this.code === "connection_failed" || this.code === "connection_lost" ||
      this.code === "idempotency_in_progress" || [502, 503, 504].includes(this.status) && this.code !== "newer_session";
  }
}
