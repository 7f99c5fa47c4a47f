import type { Session } from "@edge-harness/client";

/** Downloads an artifact or attachment. The browser saves it and never shows it as a page. */
export async function save(session: Session, ref: string, name: string): Promise<void> {
  const bytes = await (await session.artifact(ref)).arrayBuffer();
  const url = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The download has to begin first.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
