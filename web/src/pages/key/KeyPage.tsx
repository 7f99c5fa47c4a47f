import { useSignal } from "@preact/signals";
import { connect, refusal, signIn } from "../../lib/credential.ts";
import { message } from "../../lib/format.ts";

/** Asks for a key, and checks it. */
export function KeyPage() {
  const error = useSignal<string | null>(refusal.value);
  const isBusy = useSignal(false);

  async function submit(event: SubmitEvent) {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    const key = String(data.get("key")).trim();
    isBusy.value = true;
    error.value = null;
    try {
      await connect(key).listSessions({ limit: 1 });
      signIn(key, data.has("remember"));
    } catch (failure) {
      error.value = message(failure);
    } finally {
      isBusy.value = false;
    }
  }

  return (
    <main class="key-page">
      <form onSubmit={submit} class="card">
        <h1>edge-harness</h1>
        <p id="key-help">Enter a key of your tenant, or a token. On your own machine, <code>make dev</code> prints an address with the key.</p>
        <label for="key">Key</label>
        <input id="key" name="key" type="password" required autocomplete="off" spellcheck={false} aria-describedby="key-help" aria-invalid={error.value !== null} />
        <label class="check"><input type="checkbox" name="remember" /> Remember on this device</label>
        {error.value && <p class="error" role="alert">{error.value}</p>}
        <button type="submit" class="primary" disabled={isBusy.value}>Continue</button>
      </form>
    </main>
  );
}
