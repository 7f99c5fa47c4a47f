import { EdgeHarnessError } from "./error.ts";

/** Silence after which a connection counts as lost. The server sends a comment every 15 seconds. */
const SILENCE_MS = 45_000;

/** One Server-Sent Event. */
export interface ServerSentEvent {
  id: string | undefined;
  name: string | undefined;
  data: string;
}

/**
 * Reads the events of a response, until it ends. Leaving the loop closes the connection.
 *
 * Throws `connection_lost` if the connection breaks or is silent for too long.
 */
export async function* serverSentEvents(response: Response, signal?: AbortSignal): AsyncGenerator<ServerSentEvent> {
  const reader = response.body!.getReader();
  const decoder = new TextDecoder();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await read(reader, signal);
      if (done) return;
      text += decoder.decode(value, { stream: true });
      const blocks = text.split("\n\n");
      text = blocks.pop()!;
      for (const block of blocks) {
        const event = parse(block);
        if (event) yield event;
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

async function read(reader: ReadableStreamDefaultReader<Uint8Array>, signal?: AbortSignal) {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const silence = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error("the connection is silent")), SILENCE_MS);
  });
  try {
    return await Promise.race([reader.read(), silence]);
  } catch (cause) {
    if (signal?.aborted) throw signal.reason;
    throw new EdgeHarnessError({ code: "connection_lost", detail: "the connection was lost" }, undefined, { cause });
  } finally {
    clearTimeout(timer);
  }
}

/** Parses the lines of one event; `undefined` for comments and settings. */
function parse(block: string): ServerSentEvent | undefined {
  let id: string | undefined;
  let name: string | undefined;
  const data: string[] = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("id: ")) id = line.slice(4);
    else if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data.push(line.slice(6));
  }
  return data.length > 0 ? { id, name, data: data.join("\n") } : undefined;
}
