// Requests of the scripts to a server. URL and KEY are in the environment.
const { URL: BASE, KEY } = process.env;

// The server rejected a request. The message contains the server's explanation if there is one.
export class Refused extends Error {}

// Sends a request. Returns the status and the parsed body.
export async function ask(path, options = {}) {
  let response;
  try {
    const headers = { authorization: `Bearer ${KEY}`, ...options.headers };
    response = await fetch(`${BASE}${path}`, { ...options, headers });
  } catch (error) {
    throw new Error(`cannot reach ${BASE}: ${error.cause?.message ?? error.message}`);
  }
  const body = await response.text();
  if (response.ok) return { status: response.status, body: body === "" ? null : JSON.parse(body) };
  let problem = {};
  try { problem = JSON.parse(body); } catch { /* not a response of the server itself */ }
  const fields = (problem.errors ?? []).map(({ pointer, detail }) => `\n  ${pointer}: ${detail}`).join("");
  throw new Refused(`${response.status} ${problem.code ?? ""} ${problem.detail ?? body.slice(0, 200)}${fields}`);
}
