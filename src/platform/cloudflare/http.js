// Requests and responses in few calls: each call between wasm and JavaScript costs as much as many headers.

/** Returns the method, the URL and the headers (`name:value`), one per line: none of them can contain a line break. */
export function head(request) {
  return `${request.method}\n${request.url}\n${headerLines(request.headers)}`;
}

/** Returns headers as lines of `name:value`. */
export function headerLines(headers) {
  return Array.from(headers, ([name, value]) => `${name}:${value}`).join("\n");
}

/** Returns headers from lines of `name:value`. Later ones replace earlier ones of the same name. */
export function headers(lines) {
  const all = new Headers();
  for (const line of lines ? lines.split("\n") : []) {
    const at = line.indexOf(":");
    all.set(line.slice(0, at), line.slice(at + 1));
  }
  return all;
}

/** Sends a request with headers from lines of `name:value`, and returns redirects instead of following them. */
export async function send(method, url, lines, body, signal) {
  return fetch(url, { method, headers: headers(lines), body, signal, redirect: "manual" });
}

/** Returns a response with headers from lines of `name:value`. */
export function response(status, lines, body) {
  return new Response(body, { status, headers: headers(lines) });
}

/** Returns a response without a header. */
export function without(response, name) {
  const copy = new Response(response.body, response);
  copy.headers.delete(name);
  return copy;
}

/** Largest body that is passed on as it is, in bytes. */
const SMALL_BODY = 16 * 1024;

/**
 * Passes a request on to an object, with `value` in the header `name` and without credentials. The new request has the
 * abort signal of `request`, and its URL and its body unless others are given. `target` is a path with a query.
 */
export function forward(namespace, object, request, target, name, value, body) {
  // The runtime keeps bytes until the response begins, in case of a redirect, which is as long as a turn may take. It does
  // not keep a stream.
  const passed = body !== undefined && body.byteLength > SMALL_BODY ? new Response(body).body : body;
  const all = new Headers(request.headers);
  all.set(name, value);
  all.delete("authorization");
  let from = request;
  if (target !== undefined) {
    // A body that has been read cannot be taken over.
    const { method, signal } = request;
    from = new Request(new URL(target, request.url), body === undefined ? request : { method, signal });
  }
  return namespace.getByName(object).fetch(from, body === undefined ? { headers: all } : { headers: all, body: passed });
}
