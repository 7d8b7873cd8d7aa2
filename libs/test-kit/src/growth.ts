const ROUNDS = 7;

async function milliseconds(work: () => unknown): Promise<number> {
  const begin = performance.now();
  await work();
  return performance.now() - begin;
}

/**
 * How many times as long a piece of work takes for `factor` times its size: about `factor` where its time grows
 * with its size, and the square of `factor` where it grows with the square. The least of several rounds counts,
 * because other programs only add to a time.
 */
export async function growth(work: (size: number) => unknown, size: number, factor: number): Promise<number> {
  let [small, large] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
  for (let round = 0; round < ROUNDS; round += 1) {
    small = Math.min(small, await milliseconds(() => work(size)));
    large = Math.min(large, await milliseconds(() => work(size * factor)));
  }
  return large / small;
}
