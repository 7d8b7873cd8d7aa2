import { commonProgram, dimensionSize, type Model, type ProgramTensor } from "@internevo/domain";
import { GIVE_OTHERS, type AwaitedTensors } from "./safetensors.ts";

/*
 * The tensors of a Hugging Face folder by name and shape, as the layer program has them. The trainer finds them in the same
 * way (native/src/checkpoint/hugging_face.cpp).
 */

/** InternLM2's own names. It keeps the three projections in one matrix. */
const FUSED: Readonly<Record<string, string>> = {
  embedding: "model.tok_embeddings.weight",
  finalNorm: "model.norm.weight",
  head: "output.weight",
  attentionNorm: "attention_norm.weight",
  wq: "attention.wqkv.weight",
  wk: "attention.wqkv.weight",
  wv: "attention.wqkv.weight",
  wo: "attention.wo.weight",
  mlpNorm: "ffn_norm.weight",
  gate: "feed_forward.w1.weight",
  up: "feed_forward.w3.weight",
  down: "feed_forward.w2.weight",
};
const OF_LAYER = /^model\.layers\.(0|[1-9]\d{0,8})\.(.+)$/;

type Shapes = ReadonlyMap<string, readonly number[]>;

/** Shapes by their names in a folder. Tensors of one name are one matrix there, with the rows of all. */
function shapesOf(model: Model, tensors: readonly ProgramTensor[], isFused: boolean): Shapes {
  const program = commonProgram(model);
  const shapes = new Map<string, number[]>();
  for (const { name, huggingFace, rows, columns } of tensors) {
    const there = isFused ? (FUSED[name] ?? huggingFace) : huggingFace;
    const [first = 0, ...rest] = [rows, columns].flatMap((dimension) =>
      dimension === undefined ? [] : dimensionSize(program, model, dimension),
    );
    shapes.set(there, [first + (shapes.get(there)?.[0] ?? 0), ...rest]);
  }
  return shapes;
}

/** The tensors that a model needs of a folder, whichever of its files has them. */
export class FolderTensors implements AwaitedTensors {
  readonly #model: Model;
  readonly #ends: Shapes;
  readonly #layer: Shapes;
  readonly #seen = new Set<string>();

  /** @param isFused as InternLM2 keeps them. */
  constructor(model: Model, isFused: boolean) {
    const { ends, tensors } = commonProgram(model);
    this.#model = model;
    this.#ends = shapesOf(model, ends.tensors, isFused);
    this.#layer = shapesOf(model, tensors, isFused);
  }

  isKnown(name: string): boolean {
    return this.#shapeOf(name) !== undefined;
  }

  /** What folders hold beside the model: a tied embedding once more, frequencies of positions. */
  isLeftOut(name: string): boolean {
    const isHead = name === "lm_head.weight" || name === "output.weight";
    return (isHead && this.#model.tiedEmbeddings) || name.endsWith(".inv_freq");
  }

  fault(name: string, shape: readonly number[]): ReturnType<AwaitedTensors["fault"]> {
    const needed = JSON.stringify(this.#shapeOf(name));
    if (JSON.stringify(shape) !== needed)
      return { message: `in another shape than the model's ${needed}`, remedy: GIVE_OTHERS };
    if (this.#seen.has(name)) return { message: "a second time", remedy: "give each tensor once" };
    this.#seen.add(name);
    return undefined;
  }

  /** The first tensor that none of the files had. */
  missing(): string | undefined {
    for (const name of this.#ends.keys()) if (!this.#seen.has(name)) return name;
    for (let layer = 0; layer < this.#model.layers; layer += 1)
      for (const own of this.#layer.keys()) {
        const name = `model.layers.${layer}.${own}`;
        if (!this.#seen.has(name)) return name;
      }
    return undefined;
  }

  #shapeOf(name: string): readonly number[] | undefined {
    const [, layer, own] = OF_LAYER.exec(name) ?? [];
    if (own === undefined) return this.#ends.get(name);
    return Number(layer) < this.#model.layers ? this.#layer.get(own) : undefined;
  }
}

/** Any tensors: which a checkpoint's file has is in the manifest. */
export const ANY_TENSORS: AwaitedTensors = {
  isKnown: () => false,
  isLeftOut: () => true,
  fault: () => undefined,
};
