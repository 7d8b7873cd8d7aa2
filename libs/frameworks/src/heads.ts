import type { Model } from "@internevo/domain";
import { canShareHeads } from "@internevo/plan";
import type { Faults } from "./problems.ts";

/** Why so many ranks cannot share the heads; null when they can. */
export const headSplitFault = (model: Model, ranks: number): string | null =>
  canShareHeads(model, ranks)
    ? null
    : `its ${model.heads} heads (${model.kvHeads} of keys and values) cannot be shared by ${ranks} ranks`;

/** Why not each of so many tensor ranks has whole heads of keys and values; null when each has. */
export const wholeHeadsFault = ({ kvHeads }: Pick<Model, "kvHeads">, ranks: number): string | null =>
  kvHeads % ranks === 0
    ? null
    : `${ranks} tensor ranks cannot share ${kvHeads} heads of keys and values: each rank has whole ones`;

/** Adds a fault where a configuration's tensor ranks cannot share heads of keys and values. */
export function checkWholeHeads(
  faults: Faults,
  field: string,
  tensorRanks: number,
  model: Pick<Model, "kvHeads">,
): void {
  // Heads that are not known are a fault of their own.
  if (!Number.isInteger(model.kvHeads)) return;
  const fault = wholeHeadsFault(model, tensorRanks);
  if (fault !== null)
    faults.add(field, tensorRanks, `does not fit: ${fault}`, `give a number that divides ${model.kvHeads}`);
}
