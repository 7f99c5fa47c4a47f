import { backOff } from "./backoff.ts";
import { EdgeHarnessError } from "./error.ts";

/** Attempts of one request before its error is thrown. */
const MAX_ATTEMPTS = 5;

/** How to reach the server. */
export interface ClientOptions {
  /** Where the server is, such as `https://agents.example.com`. */
  url: string;
  /** A key or a token; or a function that returns it, called for each request, if it changes. */
  key: string | (() => string | Promise<string>);
  /** The user, if `key` is a key of the tenant. A token names its user itself. */
  user?: string;
  /** Replaces the global `fetch`. */
  fetch?: typeof fetch;
}

/** One request. */
export interface RequestOptions {
  /** Parameters of the query; those that are `undefined` are left out. */
  query?: Record<string, string | number | undefined>;
  /** Sent as JSON. */
  json?: unknown;
  /** Sent as it is. */
  body?: BodyInit;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** Identifies a POST that must run once. With it, or without an effect, a request that fails is repeated. */
  idempotencyKey?: string;
  /** Whether repeating the request is harmless. The default is `true` for every method but POST. */
  isRepeatable?: boolean;
}

/** Returns a new Idempotency-Key. */
export function newKey(): string {
  // `crypto.randomUUID` is missing on pages without TLS.
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Sends requests with the caller's credential, and turns each failure into an `EdgeHarnessError`. */
export class Transport {
  readonly url: string;
  readonly user: string | undefined;
  readonly #key: ClientOptions["key"];
  readonly #fetch: typeof fetch;

  constructor(options: ClientOptions) {
    this.url = options.url.replace(/\/+$/, "");
    this.user = options.user;
    this.#key = options.key;
    // Browsers and Workers refuse a `fetch` that is called as a method of another object.
    this.#fetch = options.fetch ?? ((input, init) => fetch(input, init));
  }

  /** Sends a request, and repeats it while the failure is transient and repeating is harmless. */
  async request(method: string, path: string, options: RequestOptions = {}): Promise<Response> {
    const isRepeatable = options.isRepeatable ?? (method !== "POST" || options.idempotencyKey !== undefined);
    for (let failures = 1; ; failures++) {
      try {
        return await this.once(method, path, options);
      } catch (error) {
        const isTransient = error instanceof EdgeHarnessError && error.isTransient;
        if (!isTransient || !isRepeatable || failures >= MAX_ATTEMPTS) throw error;
        await backOff(failures, error, options.signal);
      }
    }
  }

  /** Sends a request and reads the JSON of its response. */
  async json<T>(method: string, path: string, options: RequestOptions = {}): Promise<T> {
    const response = await this.request(method, path, options);
    return (response.status === 204 ? undefined : await response.json()) as T;
  }

  /** Sends a request once. */
  async once(method: string, path: string, options: RequestOptions): Promise<Response> {
    const url = new URL(this.url + path);
    const query = { ...options.query };
    // In each request: with a key, the server would otherwise not check whose session it is.
    query["user"] ??= this.user;
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined) url.searchParams.set(name, String(value));
    }
    const key = typeof this.#key === "string" ? this.#key : await this.#key();
    const headers: Record<string, string> = { ...options.headers, authorization: `Bearer ${key}` };
    if (options.json !== undefined) headers["content-type"] = "application/json";
    if (options.idempotencyKey !== undefined) headers["idempotency-key"] = options.idempotencyKey;
    const body = options.json === undefined ? options.body : JSON.stringify(options.json);
    const init: RequestInit = { method, headers, body };
    if (options.signal) init.signal = options.signal;
    let response: Response;
    try {
      response = await this.#fetch(url, init);
    } catch (error) {
      if (options.signal?.aborted) throw options.signal.reason;
      throw new EdgeHarnessError({ code: "connection_failed", detail: `no connection to ${url.host}` }, undefined, { cause: error });
    }
    if (!response.ok) throw await EdgeHarnessError.of(response);
    return response;
  }
}

/** Encodes an id for a path. */
export const segment = encodeURIComponent;
