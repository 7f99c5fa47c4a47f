// The floor that does our storage, in plain JavaScript: what the Worker's own work costs at least. It looks for changed
// files before the model call, sends the definitions of tools, stores four records and the session's state in two
// transactions, and indexes the turn afterwards.
import { FloorObject } from "./worker.js";
export { default } from "./worker.js";

// The size of the standard agent's tools.
const TOOLS = [
  { type: "function", function: { name: "tool", description: "word ".repeat(4_000), parameters: { type: "object" } } },
];
const STATE = JSON.stringify({ state: "word ".repeat(300) });
const COLLECTION =
  "(SELECT id FROM memory_collections WHERE tenant = 'dev' AND user = 'dev' AND agent = 'default' AND kind = 'turns')";

export class StoringObject extends FloorObject {
  constructor(state, env) {
    super(state, env);
    this.sql.exec("CREATE TABLE IF NOT EXISTS documents (name TEXT PRIMARY KEY, json TEXT)");
  }

  async begin(content) {
    this.commit([["user", content]]);
    await this.env.DB.prepare(
      "SELECT scope, path, etag, bytes FROM files WHERE tenant = ?1 AND scope IN (?2, ?3, ?4) AND path IN (?5, ?6, ?7)",
    ).bind(
      "dev", "agents/default/shared", "agents/default/users/dev", `agents/default/sessions/${this.ctx.id}`,
      "AGENTS.md", "MEMORY.md", "knowledge/KNOWLEDGE.md",
    ).all();
  }

  modelRequest(content) {
    return { ...super.modelRequest(content), tools: TOOLS };
  }

  end(content, text) {
    this.commit([["assistant", text], ["usage", "{}"], ["end", "{}"]]);
    this.ctx.waitUntil(this.index(content, text));
  }

  commit(records) {
    this.ctx.storage.transactionSync(() => {
      for (const [role, text] of records) this.store(role, text);
      this.sql.exec("INSERT OR REPLACE INTO documents VALUES ('state', ?)", STATE);
    });
  }

  index(content, text) {
    const { DB } = this.env;
    const [session, now] = [String(this.ctx.id), Date.now()];
    const place = this.sql.exec("SELECT max(id) AS id FROM messages").one().id;
    const entry = (offset, speaker, from) =>
      `SELECT ${COLLECTION}, last + ${offset}, ?1 || '/${speaker}', 0, 'session', ?2, ?3 + ${offset}, ?2, ?4, '${speaker}', ` +
      `3, ${from} FROM memory_serial`;
    return DB.batch([
      DB.prepare(
        "INSERT INTO memory_collections (id, tenant, user, agent, kind) " +
        "SELECT last + 1, 'dev', 'dev', 'default', 'turns' FROM memory_serial WHERE true ON CONFLICT DO NOTHING",
      ),
      DB.prepare(
        "INSERT INTO memory_entries (collection, serial, key, part, source, grp, position, session, at, speaker, " +
        `length, text) ${entry(1, "user", "?5")} UNION ALL ${entry(2, "assistant", "?6")}`,
      ).bind(`${session}/${place}`, session, place, now, content, text),
      DB.prepare(
        "INSERT INTO memory_terms (rowid, terms) SELECT last + 1, ?1 FROM memory_serial " +
        "UNION ALL SELECT last + 2, ?2 FROM memory_serial",
      ).bind(`c1_${content}`, "c1_token"),
      DB.prepare(
        "INSERT INTO memory_groups (collection, name, next, entries, bytes, last, updated_at) " +
        `SELECT ${COLLECTION}, ?1, 2, 2, ?2, last + 2, ?3 FROM memory_serial WHERE true ON CONFLICT DO UPDATE SET ` +
        "next = next + 2, entries = entries + 2, bytes = bytes + excluded.bytes, last = excluded.last, " +
        "updated_at = excluded.updated_at",
      ).bind(session, content.length + text.length, now),
      DB.prepare(`UPDATE memory_collections SET documents = documents + 2, length = length + 6 WHERE id = ${COLLECTION}`),
      DB.prepare("UPDATE memory_serial SET last = last + 2"),
    ]);
  }
}
