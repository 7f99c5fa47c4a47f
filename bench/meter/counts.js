// Counts what a Worker asks of the platform: it replaces functions of the global scope, and of the prototypes of
// bindings, by functions that also count. It must be imported before the Worker's own module.
const counts = {};
let memory;
const cursors = [];

export const add = (name, number = 1) => (counts[name] = (counts[name] ?? 0) + number);

// Returns the size of wasm's memory in bytes.
export const memoryBytes = () => memory.buffer.byteLength;

// Returns the counts since the last call.
export function take() {
  // A cursor knows its rows once it has been read.
  for (const cursor of cursors.splice(0)) {
    add("object rows read", cursor.rowsRead);
    add("object rows written", cursor.rowsWritten);
  }
  const taken = { ...counts };
  for (const name of Object.keys(counts)) delete counts[name];
  return taken;
}

const seen = new WeakSet();

// Replaces a method of an object's prototype once.
function wrap(owner, name, count) {
  const method = owner?.[name];
  if (typeof method !== "function" || seen.has(method)) return;
  const wrapped = function (...args) {
    return count(method.apply(this, args), args);
  };
  seen.add(wrapped);
  owner[name] = wrapped;
}

const proto = (object) => Object.getPrototypeOf(object);

function billed(result) {
  add("D1 rows read", result.meta.rows_read);
  add("D1 rows written", result.meta.rows_written);
  return result;
}

const counting = (name) => (result) => (add(name), result);

export function meterBindings(env) {
  for (const binding of Object.values(env)) {
    if (typeof binding?.prepare === "function") meterDatabase(binding);
    if (typeof binding?.put === "function" && typeof binding?.head === "function") {
      for (const name of ["get", "head", "put", "delete", "list"]) wrap(proto(binding), name, counting("R2 operations"));
    }
    if (typeof binding?.getByName === "function") wrap(proto(binding), "getByName", counting("object requests"));
  }
}

function meterDatabase(database) {
  const call = (statements) => (add("D1 calls"), add("D1 statements", statements));
  wrap(proto(database), "batch", async (results, [statements]) => {
    call(statements.length);
    return (await results).map(billed);
  });
  for (const name of ["run", "all"]) {
    wrap(proto(database.prepare("SELECT 1")), name, async (result) => (call(1), billed(await result)));
  }
}

export function meterStorage(storage) {
  wrap(proto(storage.sql), "exec", (cursor) => (add("object statements"), cursors.push(cursor), cursor));
  wrap(proto(storage), "transactionSync", counting("object transactions"));
  wrap(proto(storage), "setAlarm", counting("alarms set"));
}

for (const [name, what] of [["fetch", "fetches"], ["setTimeout", "timers"]]) {
  wrap(globalThis, name, counting(what));
}

const { Instance } = WebAssembly;
WebAssembly.Instance = class {
  constructor(module, imports) {
    const outward = Object.entries(imports).map(([name, group]) => [name, counted(group, "calls from wasm")]);
    const instance = new Instance(module, Object.fromEntries(outward));
    memory = instance.exports.memory;
    return { exports: counted(instance.exports, "calls into wasm") };
  }
};

function counted(group, what) {
  const all = Object.entries(group).map(([name, value]) => {
    if (typeof value !== "function") return [name, value];
    return [name, (...args) => (add(what), value(...args))];
  });
  return Object.fromEntries(all);
}
