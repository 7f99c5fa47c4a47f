// Stores each agent in a folder as a new version. See agents-push.sh, and docs/agents.md for the files of an agent.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { parse as parseToml } from "smol-toml";
import { parse as parseYaml } from "yaml";
import { Refused, ask } from "./api.mjs";

const { DIR } = process.env;
// The files that make a folder the folder of an agent.
const MARKERS = ["agent.toml", "AGENTS.md"];
// The folders whose files become files of the agent.
const FOLDERS = ["knowledge", "skills"];
// What else may be in the folder of an agent.
const KNOWN = new Set([...MARKERS, ...FOLDERS, "subagents", "tools.json"]);
// Files that are for people only.
const IGNORED = /^(\.|README\.md$|LICENSE)/;

const utf8 = new TextDecoder("utf-8", { fatal: true });

function fail(file, why) {
  throw new Error(`${file}: ${why}`);
}

function text(file) {
  try {
    return utf8.decode(readFileSync(file));
  } catch (error) {
    return fail(file, error instanceof TypeError ? "is not text in UTF-8" : error.message);
  }
}

function parsed(file, parse, source = text(file)) {
  let value;
  try {
    value = parse(source);
  } catch (error) {
    fail(file, error.message);
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) fail(file, "expected a table of fields");
  return value;
}

// Splits a Markdown file into its front matter and the text below it.
function markdown(file) {
  const source = text(file);
  const match = /^---\r?\n([\s\S]*?)\r?\n---[ \t]*(?:\r?\n|$)/.exec(source);
  if (!match) return { fields: {}, body: source.trim() };
  return { fields: parsed(file, parseYaml, match[1]), body: source.slice(match[0].length).trim() };
}

function* walk(folder, prefix) {
  const entries = readdirSync(folder, { withFileTypes: true }).filter(({ name }) => !name.startsWith("."));
  for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const [file, path] = [join(folder, entry.name), `${prefix}/${entry.name}`];
    if (entry.isDirectory()) yield* walk(file, path);
    else if (entry.isFile()) yield [file, path];
    else fail(file, "is neither a file nor a folder");
  }
}

// A kind of subagent: the name of its file is its id, and the text is its instructions.
function subagent(file) {
  const { fields, body } = markdown(file);
  const { steps, maxIters, ...rest } = fields;
  const kind = { id: basename(file, ".md"), ...rest, instructions: body };
  const most = fields.max_steps ?? steps ?? maxIters;
  return most === undefined ? kind : { ...kind, max_steps: most };
}

// What `tools.json` says, as fields of a definition.
function toolsOf(file) {
  const { allow, deny, mcpServers, ...rest } = parsed(file, JSON.parse);
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) fail(file, `unknown field ${JSON.stringify(unknown)}; expected allow, deny and mcpServers`);
  const fields = {};
  if (allow !== undefined || deny !== undefined) fields.tools = { allow: allow ?? [], deny: deny ?? [] };
  if (mcpServers !== undefined) fields.mcp_servers = mcpServers;
  return fields;
}

// Reads the folder of an agent as a definition.
function definitionOf(folder) {
  for (const name of readdirSync(folder)) {
    if (!KNOWN.has(name) && !IGNORED.test(name)) fail(join(folder, name), `is not a file of an agent; expected ${[...KNOWN].join(", ")}`);
  }
  const at = (name) => join(folder, name);
  const definition = existsSync(at("agent.toml")) ? parsed(at("agent.toml"), parseToml) : {};
  const add = (file, fields) => {
    for (const [name, value] of Object.entries(fields)) {
      if (name in definition) fail(file, `sets ${name}, which another file sets, too`);
      definition[name] = value;
    }
  };
  if (existsSync(at("AGENTS.md"))) {
    const { fields, body } = markdown(at("AGENTS.md"));
    add(at("AGENTS.md"), body === "" ? fields : { ...fields, instructions: body });
  }
  if (existsSync(at("tools.json"))) add(at("tools.json"), toolsOf(at("tools.json")));
  if (existsSync(at("subagents"))) {
    const files = readdirSync(at("subagents")).filter((name) => name.endsWith(".md")).sort();
    add(at("subagents"), { subagents: files.map((name) => subagent(join(at("subagents"), name))) });
  }
  const files = {};
  for (const name of FOLDERS) {
    if (!existsSync(at(name))) continue;
    for (const [file, path] of walk(at(name), name)) files[path] = text(file);
  }
  if (Object.keys(files).length > 0) add(folder, { files });
  return definition;
}

const isAgent = (folder) => MARKERS.some((name) => existsSync(join(folder, name)));

function agentFolders() {
  if (isAgent(DIR)) return [DIR];
  const folders = readdirSync(DIR, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  const agents = folders.map(({ name }) => join(DIR, name)).filter(isAgent).sort();
  if (agents.length === 0) fail(DIR, `has no agent: a folder with ${MARKERS.join(" or ")}`);
  return agents;
}

try {
  // All folders are read first, so that a fault in one changes nothing.
  const agents = agentFolders().map((folder) => [basename(folder), definitionOf(folder)]);
  for (const [id, definition] of agents) {
    const path = `/v1/agents/${encodeURIComponent(id)}`;
    const headers = { "content-type": "application/json" };
    try {
      const { body } = await ask(path, { method: "PUT", headers, body: JSON.stringify(definition) });
      console.log(`${id}: version ${body.version}`);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      console.error(`${id}: refused: ${error.message}`);
      process.exitCode = 1;
    }
  }
} catch (error) {
  console.error(`error: ${error.message}`);
  process.exitCode = 1;
}
