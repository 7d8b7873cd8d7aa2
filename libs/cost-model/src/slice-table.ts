import type { SliceTime } from "./layer-time.ts";
import type { Kept } from "./warnings.ts";

const ROW = 22;

function write(into: Float64Array, at: number, time: SliceTime): void {
  const [f0, f1, f2, f3] = time.forwardModules;
  const [b0, b1, b2, b3] = time.backwardModules;
  into[at] = time.forwardSeconds;
  into[at + 1] = time.backwardSeconds;
  into[at + 2] = f0;
  into[at + 3] = f1;
  into[at + 4] = f2;
  into[at + 5] = f3;
  into[at + 6] = b0;
  into[at + 7] = b1;
  into[at + 8] = b2;
  into[at + 9] = b3;
  into[at + 10] = time.forwardAttentionSeconds;
  into[at + 11] = time.backwardAttentionSeconds;
  into[at + 12] = time.recomputeSeconds;
  into[at + 13] = time.forwardCommunicationSeconds;
  into[at + 14] = time.backwardCommunicationSeconds;
  into[at + 15] = time.recomputeCommunicationSeconds;
  into[at + 16] = time.embeddingCommunicationSeconds;
  into[at + 17] = time.headCommunicationSeconds;
  into[at + 18] = time.embeddingSeconds;
  into[at + 19] = time.headSeconds;
  into[at + 20] = time.unitWaits;
  into[at + 21] = time.layerWaits;
}

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
 * Times of many slices in one array of numbers, each with what was warned of. As objects they are fifteen things each for the
 * garbage collector to mark, and a thread that holds hundreds of thousands stands still for a quarter of a second at a time.
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
    write(this.#numbers, place * ROW, value);
    // Neighbours are often warned of the same.
    const last = this.#warned.at(-1);
    this.#warned.push(last?.length === warned.length && last.every((warning, at) => warning === warned[at]) ? last : warned);
    return place;
  }

  at(place: number): Kept<SliceTime> {
    return { value: read(this.#numbers, place * ROW), warned: this.#warned[place] as Kept<SliceTime>["warned"] };
  }
}
