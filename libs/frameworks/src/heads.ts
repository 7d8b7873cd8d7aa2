import type { Model } from "@internevo/domain";
import { canShareHeads } from "@internevo/plan";

/** Why so many ranks cannot share the heads; null when they can. */
export const headSplitFault = (model: Model, ranks: number): string | null =>
  canShareHeads(model, ranks)
    ? null
    : `its ${model.heads} heads (${model.kvHeads} of keys and values) cannot be shared by ${ranks} ranks`;
