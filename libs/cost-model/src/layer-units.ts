import {
  DECODER_PROGRAM,
  recomputedOperators,
  unitBlocks,
  unitPlace,
  unitProducts,
  type ByUnit,
  type Pass,
} from "@internevo/domain";

/*
 * The units of a layer, by their places. Times of slices and of shardings are kept by unit for every layer alike, so all
 * layers of a model must have the units of this program.
 */

export const UNIT_COUNT = DECODER_PROGRAM.units.length;

/** What timelines call the product of each unit: "qkv". */
export const UNIT_PRODUCTS: readonly string[] = unitProducts(DECODER_PROGRAM).map(({ name }) => name);

/** Places of the units, block by block: attention, MLP. */
export const UNIT_BLOCKS = unitBlocks(DECODER_PROGRAM);

const attention = DECODER_PROGRAM.operators.find(({ kind }) => kind === "attention");
const attentionUnit = (pass: Pass): number =>
  attention === undefined ? -1 : unitPlace(DECODER_PROGRAM, attention, pass);
/** The unit in whose time attention runs: while it does, the unit after it in the pass is on its way. */
export const ATTENTION_UNIT: Readonly<Record<Pass, number>> = {
  forward: attentionUnit("forward"),
  backward: attentionUnit("backward"),
};

/** Places of the units that recomputation uses. */
export const RECOMPUTED_UNITS: readonly number[] = [
  ...new Set(recomputedOperators(DECODER_PROGRAM).map((one) => unitPlace(DECODER_PROGRAM, one, "forward"))),
];

export const byUnit = (of: (place: number) => number): ByUnit => {
  const list = new Array<number>(UNIT_COUNT);
  for (let place = 0; place < UNIT_COUNT; place += 1) list[place] = of(place);
  return list;
};

/** A value of every unit with attention's added to the unit in whose time it runs. */
export const withAttention = (units: ByUnit, pass: Pass, seconds: number): ByUnit =>
  byUnit((place) => (units[place] as number) + (place === ATTENTION_UNIT[pass] ? seconds : 0));

export function sumOfUnits(units: ByUnit): number {
  let sum = 0;
  for (let place = 0; place < units.length; place += 1) sum += units[place] as number;
  return sum;
}
