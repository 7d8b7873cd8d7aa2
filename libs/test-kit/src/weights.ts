import { open, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { commonProgram, dimensionSize, type Model, type ProgramTensor } from "@internevo/domain";

export type Shapes = Readonly<Record<string, readonly number[]>>;

/** A safetensors file whose header is this text, with so many bytes of zeros behind it. */
export async function writeHeader(
  path: string,
  header: string,
  dataBytes: number,
  headerBytes = BigInt(Buffer.byteLength(header)),
): Promise<number> {
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(headerBytes);
  const begin = Buffer.concat([length, Buffer.from(header)]);
  const file = await open(path, "w");
  try {
    await file.write(begin);
    // Without taking room on the disk.
    await file.truncate(begin.length + dataBytes);
  } finally {
    await file.close();
  }
  return begin.length + dataBytes;
}

/** A safetensors file of zeros in bfloat16. @returns its bytes */
export async function writeSafetensors(path: string, shapes: Shapes): Promise<number> {
  let at = 0;
  const entries = Object.entries(shapes).map(([name, shape]) => {
    const begin = at;
    at += 2 * shape.reduce((product, size) => product * size, 1);
    return [name, { dtype: "BF16", shape, data_offsets: [begin, at] }];
  });
  const header = { __metadata__: { format: "pt" }, ...(Object.fromEntries(entries) as object) };
  return writeHeader(path, JSON.stringify(header).padEnd(4096), at);
}

/** The tensors of a folder of a model whose projections are tensors of their own. */
export function huggingFaceShapes(model: Model): Shapes {
  const program = commonProgram(model);
  const shaped = (tensor: ProgramTensor, before = ""): [string, number[]] => [
    before + tensor.huggingFace,
    [tensor.rows, tensor.columns].flatMap((name) =>
      name === undefined ? [] : dimensionSize(program, model, name),
    ),
  ];
  const layers = Array.from({ length: model.layers }, (_, layer) =>
    program.tensors.map((tensor) => shaped(tensor, `model.layers.${layer}.`)),
  );
  return Object.fromEntries([...program.ends.tensors.map((tensor) => shaped(tensor)), ...layers.flat()]);
}

/** The tensors of an InternLM2 folder. */
export function internlm2Shapes(model: Model): Shapes {
  const { hiddenSize: hidden, ffnHiddenSize: ffn, vocabularySize: vocabulary, heads, kvHeads } = model;
  const layers = Array.from({ length: model.layers }, (_, layer) =>
    Object.entries({
      "attention_norm.weight": [hidden],
      "attention.wqkv.weight": [(heads + 2 * kvHeads) * (hidden / heads), hidden],
      "attention.wo.weight": [hidden, hidden],
      "ffn_norm.weight": [hidden],
      "feed_forward.w1.weight": [ffn, hidden],
      "feed_forward.w2.weight": [hidden, ffn],
      "feed_forward.w3.weight": [ffn, hidden],
    }).map(([name, shape]): [string, number[]] => [`model.layers.${layer}.${name}`, shape]),
  );
  return {
    "model.tok_embeddings.weight": [vocabulary, hidden],
    "model.norm.weight": [hidden],
    "output.weight": [vocabulary, hidden],
    ...Object.fromEntries(layers.flat()),
  };
}

/** A folder's only file of tensors, as a model has them. */
export const writeWeights = (folder: string, model: Model): Promise<number> =>
  writeSafetensors(join(folder, "model.safetensors"), huggingFaceShapes(model));

/** A manifest of a checkpoint, as far as it is read before a training. */
export const writeManifest = (folder: string, model: object, files: unknown): Promise<void> =>
  writeFile(join(folder, "manifest.json"), JSON.stringify({ content: { identity: { model }, files } }));
