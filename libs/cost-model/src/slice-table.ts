import type { SliceTime } from "./layer-time.ts";
import { byUnit, UNIT_COUNT } from "./layer-units.ts";
import type { Kept } from "./warnings.ts";

/** Numbers of a slice beside those of its units. */
const OTHERS = 18;
const ROW = OTHERS + 2 * UNIT_COUNT;

/** A row, in the order in which {@link read} reads it. */
const rowOf = (time: SliceTime): number[] => [
  ...time.forwardModules,
  ...time.backwardModules,
  time.forwardSeconds,
  time.backwardSeconds,
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
  time.gateUpSeconds,
  time.gateUpCommunicationSeconds,
  time.toHostSeconds,
  time.toDeviceSeconds,
];

function read(from: Float64Array, at: number): SliceTime {
  const others = at + 2 * UNIT_COUNT;
  const number = (place: number): number => from[others + place] as number;
  return {
    forwardModules: byUnit((unit) => from[at + unit] as number),
    backwardModules: byUnit((unit) => from[at + UNIT_COUNT + unit] as number),
    forwardSeconds: number(0),
    backwardSeconds: number(1),
    forwardAttentionSeconds: number(2),
    backwardAttentionSeconds: number(3),
    recomputeSeconds: number(4),
    forwardCommunicationSeconds: number(5),
    backwardCommunicationSeconds: number(6),
    recomputeCommunicationSeconds: number(7),
    embeddingCommunicationSeconds: number(8),
    headCommunicationSeconds: number(9),
    embeddingSeconds: number(10),
    headSeconds: number(11),
    unitWaits: number(12),
    layerWaits: number(13),
    gateUpSeconds: number(14),
    gateUpCommunicationSeconds: number(15),
    toHostSeconds: number(16),
    toDeviceSeconds: number(17),
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
