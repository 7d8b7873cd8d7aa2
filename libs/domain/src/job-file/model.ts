import { defaultFfnHiddenSize, MODEL_DEFAULTS, NAMED_MODELS, plainModel, type Model } from "../model.ts";
import { didYouMean } from "../nearest.ts";
import type { ProblemDetail } from "../problem.ts";
import { ropeScalingFaults } from "../rope-scaling.ts";
import { modelNames, type JobFile } from "./schema.ts";

/** The named model, or undefined with a detail. */
function baseModel(written: JobFile["model"], details: ProblemDetail[]): Model | undefined {
  const name = typeof written === "string" ? written : written.base;
  if (name === undefined) return undefined;
  if (Object.hasOwn(NAMED_MODELS, name)) return NAMED_MODELS[name];
  details.push({
    field: typeof written === "string" ? "model" : "model.base",
    value: name,
    message: "no such model",
    remedy: `${didYouMean(name, Object.keys(NAMED_MODELS))}use one of ${modelNames()}, or give hiddenSize, layers, heads and vocabularySize`,
  });
  return undefined;
}

/** What of a model is known when its fields are held against each other. */
type KnownModel = { readonly [Field in keyof Model]?: Model[Field] | undefined };

/** What the size of heads must be, whether it is given or follows. */
function checkHeadSize({ hiddenSize, heads, headSize }: KnownModel, details: ProblemDetail[]): void {
  if (headSize !== undefined) {
    if (headSize % 2 !== 0)
      details.push({
        field: "model.headSize",
        value: headSize,
        message: "is odd, and rotary positions turn pairs of a head's elements",
        remedy: "give an even number, or leave it out for hiddenSize / heads",
      });
    return;
  }
  if (hiddenSize === undefined || heads === undefined) return;
  if (hiddenSize % heads !== 0) {
    details.push({
      field: "model.heads",
      value: heads,
      message: `does not divide hiddenSize ${hiddenSize}`,
      remedy: "choose heads that divide hiddenSize, or give headSize",
    });
  } else if ((hiddenSize / heads) % 2 !== 0) {
    details.push({
      field: "model.heads",
      value: heads,
      message: `gives heads of odd size ${hiddenSize / heads}, which rotary positions cannot rotate`,
      remedy: "choose heads so that hiddenSize / heads is even, or give headSize",
    });
  }
}

/** What the sizes must have to do with each other; only those that are known are held against each other. */
function checkModel(model: KnownModel, details: ProblemDetail[]): void {
  const { heads, kvHeads, ropeScaling, ropeTheta } = model;
  checkHeadSize(model, details);
  if (heads !== undefined && kvHeads !== undefined && heads % kvHeads !== 0) {
    details.push({
      field: "model.kvHeads",
      value: kvHeads,
      message: `does not divide heads ${heads}`,
      remedy: "choose kvHeads that divide heads",
    });
  }
  if (ropeScaling !== undefined)
    details.push(...ropeScalingFaults(ropeScaling, ropeTheta, "model.ropeScaling"));
}

/** The model with every size; undefined, with details, when one of them cannot be known. */
export function resolveModel(written: JobFile["model"], details: ProblemDetail[]): Model | undefined {
  const before = details.length;
  const base = baseModel(written, details);
  const { base: baseName, ...given }: Partial<Model> & { base?: string } =
    typeof written === "string" ? { base: written } : written;
  const { hiddenSize, layers, heads, vocabularySize } = { ...base, ...given };
  // A base that nobody knows has been told; what it would have said is not missing as well.
  if (baseName === undefined) {
    for (const [field, value] of Object.entries({ hiddenSize, layers, heads, vocabularySize })) {
      if (value === undefined)
        details.push({
          field: `model.${field}`,
          message: "is missing",
          remedy: "add it, or name a base model",
        });
    }
  }
  const kvHeads = given.kvHeads ?? (given.heads === undefined ? base?.kvHeads : undefined) ?? heads;
  checkModel({ ...base, ...given, hiddenSize, heads, kvHeads }, details);
  if (
    details.length > before ||
    hiddenSize === undefined ||
    layers === undefined ||
    heads === undefined ||
    kvHeads === undefined ||
    vocabularySize === undefined
  )
    return undefined;
  const ffnHiddenSize =
    given.ffnHiddenSize ??
    (given.hiddenSize === undefined ? base?.ffnHiddenSize : undefined) ??
    defaultFfnHiddenSize(hiddenSize);
  return plainModel({
    name: "custom",
    ...MODEL_DEFAULTS,
    ...base,
    ...given,
    hiddenSize,
    layers,
    heads,
    kvHeads,
    vocabularySize,
    ffnHiddenSize,
  });
}
