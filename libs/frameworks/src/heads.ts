import { sequenceSplitFault } from "@internevo/cost-model";
import type { Model } from "@internevo/domain";

/** Why so many ranks cannot share the heads; null when they can. */
export const headSplitFault = (model: Model, ranks: number): string | null =>
  sequenceSplitFault({ model, sequenceLengthTokens: ranks }, ranks) === null
    ? null
    : `its ${model.heads} heads (${model.kvHeads} of keys and values) cannot be shared by ${ranks} ranks`;
