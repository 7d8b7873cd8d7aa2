import type { Model } from "@internevo/domain";
import { canShareHeads } from "@internevo/plan";

/*
 * A plan shares a sequence by tensor ranks or by others, and not by both. What a configuration with both can be instead
 * has as many ranks of one kind.
 */

/** The options that say a layout, and whether model and sequence take it. */
export interface Layout {
  readonly words: string;
  readonly isPossible: boolean;
}

/** Whether so many tensor ranks can split model and sequence. */
export const splitsByTensor = (model: Model, sequenceLengthTokens: number, ranks: number): boolean =>
  canShareHeads(model, ranks) && model.ffnHiddenSize % ranks === 0 && sequenceLengthTokens % ranks === 0;

/** What to do about a configuration that shares a sequence in two ways: the layouts that can be planned instead. */
export function oneWay(layouts: readonly Layout[]): string {
  const words = layouts.filter(({ isPossible }) => isPossible).map((layout) => `${layout.words} alone`);
  return `use ${words.length === 0 ? "one of them with fewer ranks" : words.join(", or ")}`;
}
