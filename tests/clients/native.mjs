// The native API of the real Worker, which URL and KEY name.
const { URL: url, KEY: key } = process.env;

/** Sends a request. Returns the JSON of the response, or its text if it is no JSON. */
export async function native(method, path, body, more = {}) {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json", ...more };
  const response = await fetch(`${url}${path}`, { method, headers, body: body && JSON.stringify(body) });
  const text = await response.text();
  if (!response.ok) throw new Error(text);
  return response.headers.get("content-type")?.startsWith("application/json") ? JSON.parse(text) : text;
}
