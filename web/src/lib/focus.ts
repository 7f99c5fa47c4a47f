/** Moves the focus to where the user writes; not on a touch screen, where it would open the keyboard. */
export function focusMessage(): void {
  if (matchMedia("(pointer: fine)").matches) document.getElementById("message")?.focus();
}
