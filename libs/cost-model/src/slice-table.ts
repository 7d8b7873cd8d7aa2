import type { SliceTime } from "./layer-time.ts";
import type { Kept } from "./warnings.ts";

const ROW = 22;

/** A row, in the order in which {@link read} reads it. */
const rowOf = (time: SliceTime): number[] => [
  time.forwardSeconds,
  time.backwardSeconds,
  ...time.forwardModules,
  ...time.backwardModules,
  time.forwardAttentionSeconds,
  time.backwardAttentionSeconds,
  time.recomputeSeconds,
  time.forwardCommunicationSeconds,
  time.backwardCommunicationSeconds,
  time.recomputeCommunicationSeconds,
  time.embeddingCommunicationSeconds,
  time.headCommunicationSeconds,
  time.embeddingSeconds,
  time.headSeconds,
  time.unitWaits,
  time.layerWaits,
];

function read(from: Float64Array, at: number): SliceTime {
  const number = (place: number): number => from[at + place] as number;
  return {
    forwardSeconds: number(0),
    backwardSeconds: number(1),
    forwardModules: [number(2), number(3), number(4), number(5)],
    backwardModules: [number(6), number(7), number(8), number(9)],
    forwardAttentionSeconds: number(10),
    backwardAttentionSeconds: number(11),
    recomputeSeconds: number(12),
    forwardCommunicationSeconds: number(13),
    backwardCommunicationSeconds: number(14),
    recomputeCommunicationSeconds: number(15),
    embeddingCommunicationSeconds: number(16),
    headCommunicationSeconds: number(17),
    embeddingSeconds: number(18),
    headSeconds: number(19),
    unitWaits: number(20),
    layerWaits: number(21),
  };
}

/**
 * Times of many slices in one array of numbers, each with what was warned of. As objects they are fifteen
 * things each for the garbage collector to mark, and a thread that holds hundreds of thousands stands still
 * for a quarter of a second at a time.
 */
export class SliceTable {
  #numbers = new Float64Array(64 * ROW);
  readonly #warned: Kept<SliceTime>["warned"][] = [];

  /** How many slices it holds. */
  get size(): number {
    return this.#warned.length;
  }

  /** @returns its place. */
  add({ value, warned }: Kept<SliceTime>): number {
    const place = this.#warned.length;
    if ((place + 1) * ROW > this.#numbers.length) {
      const longer = new Float64Array(2 * this.#numbers.length);
      longer.set(this.#numbers);
      this.#numbers = longer;
    }
    this.#numbers.set(rowOf(value), place * ROW);
    // Neighbours are often warned of the same.
    const last = this.#warned.at(-1);
    this.#warned.push(
      last?.length === warned.length && last.every((warning, at) => warning === warned[at]) ? last : warned,
    );
    return place;
  }

  at(place: number): Kept<SliceTime> {
    return {
      value: read(this.#numbers, place * ROW),
      warned: this.#warned[place] as Kept<SliceTime>["warned"],
    };
  }
}
