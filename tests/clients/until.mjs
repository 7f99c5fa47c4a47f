/** Waits until `find` returns something, and returns it. */
export async function until(find) {
  for (const end = Date.now() + 20_000; Date.now() < end;) {
    const found = await find();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  throw new Error("it never happened");
}
