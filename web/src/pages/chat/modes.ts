// The modes of an agent, which the server names.
import type { EdgeHarness } from "@edge-harness/client";

export interface Mode {
  id: string;
  name?: string;
  description?: string;
  default?: boolean;
  /** The modes that a session may switch to; all if absent. */
  transitions_to?: string[];
}

/** Returns the modes of an agent. A definition without modes has those of the deployment, as the agent `default` in version 1. */
export async function modesOf(client: EdgeHarness, agent: string, version?: number): Promise<Mode[]> {
  const read = async (path: string) => (await (await client.request("GET", path)).json() as { modes?: Mode[] }).modes;
  const query = version === undefined ? "" : `?version=${version}`;
  return await read(`/v1/agents/${encodeURIComponent(agent)}${query}`) ?? await read("/v1/agents/default?version=1") ?? [];
}

/** Returns the modes to choose from: the current one, and those that follow it. */
export function choices(modes: Mode[], current: string | null): Mode[] {
  if (current === null) return modes;
  const own = modes.find(({ id }) => id === current);
  if (!own) return [{ id: current }, ...modes];
  return modes.filter(({ id }) => id === current || (own.transitions_to?.includes(id) ?? true));
}
