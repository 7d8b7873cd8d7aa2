import { uniformFloat64 } from "pure-rand/distribution/uniformFloat64";
import { uniformInt } from "pure-rand/distribution/uniformInt";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";

/** One process is replaced, so long after the one before was ready. */
export interface Replacement {
  readonly name: string;
  /** Which of the processes of its name, from 0. */
  readonly instance: number;
  readonly afterSeconds: number;
}

/** Every process once, in an order and with pauses that a seed draws. */
export function drawOrder(
  names: readonly string[],
  instances: number,
  seed: number,
  mostSeconds: number,
): readonly Replacement[] {
  const random = xoroshiro128plus(seed);
  const left = names.flatMap((name) =>
    Array.from({ length: instances }, (_, instance) => ({ name, instance })),
  );
  const order: Replacement[] = [];
  while (left.length > 0) {
    const [next] = left.splice(uniformInt(random, 0, left.length - 1), 1);
    if (next) order.push({ ...next, afterSeconds: mostSeconds * uniformFloat64(random) });
  }
  return order;
}
