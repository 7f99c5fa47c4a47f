import { useSignal } from "@preact/signals";

/** Copies a text. */
export function CopyButton({ text }: { text: string }) {
  const isCopied = useSignal(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    isCopied.value = true;
    setTimeout(() => (isCopied.value = false), 1_500);
  };
  // Pages without TLS have no clipboard.
  return navigator.clipboard ? <button type="button" class="quiet" onClick={copy}>{isCopied.value ? "Copied" : "Copy"}</button> : null;
}
