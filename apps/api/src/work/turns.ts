/**
 * Takes the items in order, so many at once, and gives the answers in the items' order. Whoever shares the
 * threads waits for one item of each request, not for whole requests. The first error ends it: what is at
 * work is aborted, and no further item begins.
 */
export async function inTurns<Item, Answer>(
  items: readonly Item[],
  atOnce: number,
  signal: AbortSignal,
  work: (item: Item, signal: AbortSignal) => Promise<Answer>,
): Promise<Answer[]> {
  const failed = new AbortController();
  const either = AbortSignal.any([signal, failed.signal]);
  const answers: Answer[] = [];
  let next = 0;
  const take = async (): Promise<void> => {
    for (let index = next++; index < items.length; index = next++) {
      either.throwIfAborted();
      answers[index] = await work(items[index] as Item, either);
    }
  };
  try {
    await Promise.all(Array.from({ length: Math.min(atOnce, items.length) }, take));
  } catch (error) {
    failed.abort();
    throw error;
  }
  return answers;
}
