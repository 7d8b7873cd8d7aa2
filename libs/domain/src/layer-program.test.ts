import { describe, expect, it } from "vitest";
import {
  checkedProgram,
  commonProgram,
  DECODER_PROGRAM,
  operatorLabels,
  programElements,
  queryWidth,
  recomputedOperators,
  repeatedOperators,
  unitBlocks,
  unitProducts,
  type LayerProgram,
} from "./layer-program.ts";
import { layerParameters, NAMED_MODELS, totalParameters, type Model } from "./model.ts";

const model: Model = { ...(NAMED_MODELS["llama-7b"] as Model), kvHeads: 8 };

describe("the decoder's program", () => {
  it("has the parameters of a LLaMA layer, and the tensor ranks' parts of them", () => {
    const [h, f, kv] = [4096, model.ffnHiddenSize, 8 * 128];
    const parts = (ranks: number, ownKv: number) => [
      h + (h * h) / ranks + 2 * h * ownKv,
      (h * h) / ranks,
      h + (2 * h * f) / ranks,
      (h * f) / ranks,
    ];
    expect(programElements(DECODER_PROGRAM, model).units).toEqual(parts(1, kv));
    expect(programElements(DECODER_PROGRAM, model, 4).units).toEqual(parts(4, kv / 4));
    // More ranks than key/value heads: each has one whole head.
    expect(programElements(DECODER_PROGRAM, model, 16).units).toEqual(parts(16, 128));
    expect(layerParameters(model)).toBe(2 * h * h + 2 * h * kv + 3 * h * f + 2 * h);
  });

  it("has the final norm where the head's weights are", () => {
    const table = model.vocabularySize * model.hiddenSize;
    const ends = { embedding: table, head: table + model.hiddenSize };
    expect(programElements(DECODER_PROGRAM, model).ends).toEqual(ends);
    const tied = { ...model, tiedEmbeddings: true };
    expect(programElements(DECODER_PROGRAM, tied).ends).toEqual({ embedding: ends.head, head: 0 });
    expect(totalParameters(model) - totalParameters(tied)).toBe(table);
  });

  it("says what runs when", () => {
    expect(unitBlocks(DECODER_PROGRAM)).toEqual([
      [0, 1],
      [2, 3],
    ]);
    expect(unitProducts(DECODER_PROGRAM).map(({ name }) => name)).toEqual([
      "qkv",
      "attention output",
      "gate and up",
      "down",
    ]);
    expect(operatorLabels(DECODER_PROGRAM, "backward").map(({ label }) => label)).toEqual([
      "linear backward down",
      "linear backward gate and up",
      "linear backward attention output",
      "attention backward",
      "linear backward qkv",
    ]);
    const program = commonProgram(model);
    expect(recomputedOperators(program).at(-1)?.name).toBe("gate and up");
    expect(repeatedOperators(program).map(({ name }) => name)).toEqual([
      "attention norm",
      "MLP norm",
      "gated activation",
    ]);
  });
});

describe("the program of a model", () => {
  const qwen: Model = { ...model, headSize: 256, queryKeyNorm: true, queryKeyValueBias: true };
  const names = (list: readonly { readonly name: string }[]): string[] => list.map(({ name }) => name);

  it("has nothing of what the model lacks, and the values that stand in for it", () => {
    const program = commonProgram(model);
    expect(names(program.operators)).toEqual([
      "attention norm",
      "qkv",
      "rotary positions",
      "attention",
      "attention output",
      "MLP norm",
      "gate and up",
      "gated activation",
      "down",
      "residual sum",
    ]);
    const attention = program.operators.find(({ kind }) => kind === "attention");
    expect(attention).toMatchObject({ reads: ["qkv"], before: { when: "ulysses" } });
    expect(attention?.before).not.toHaveProperty("unless");
    expect(names(program.values)).not.toEqual(expect.arrayContaining(["queryKey"]));
    expect(names(program.values)).not.toContain("headGains");
    expect(program.values.find(({ name }) => name === "attentionGradientHeads")?.otherwise).toBe("hidden");
    expect(commonProgram({ ...model })).toBe(program);
  });

  it("has norms of heads before rotary positions, after heads were exchanged", () => {
    const program = commonProgram(qwen);
    expect(names(program.operators).slice(0, 6)).toEqual([
      "attention norm",
      "qkv",
      "projection bias",
      "query and key norm",
      "rotary positions of normalised heads",
      "attention",
    ]);
    expect(program.operators[3]?.before).toEqual({
      collective: "all-to-all",
      when: "ulysses",
      of: ["query", "key", "key"],
    });
    expect(program.operators[5]).not.toHaveProperty("before");
    expect(names(repeatedOperators(program))).toContain("rotary positions of normalised heads");
    expect(program.values.find(({ name }) => name === "attentionGradientHeads")?.otherwise).toBe(
      "attentionGradientTokens",
    );
  });

  it("counts heads of their own size, biases and gains of heads", () => {
    const [h, kv] = [4096, 8 * 256];
    expect(queryWidth(qwen)).toBe(2 * h);
    expect(programElements(commonProgram(qwen), qwen).units.slice(0, 2)).toEqual([
      h + 2 * h * h + 2 * h * kv + 2 * h + 2 * kv + 2 * 256,
      2 * h * h,
    ]);
    // Tensor ranks have a part of each bias, and all have the gains.
    expect(programElements(commonProgram(qwen), qwen, 4).units[0]).toBe(
      h + (2 * h * h + 2 * h * kv + 2 * h + 2 * kv) / 4 + 2 * 256,
    );
    expect(totalParameters(qwen) - totalParameters({ ...qwen, queryKeyNorm: false })).toBe(
      model.layers * 2 * 256,
    );
  });
});

describe("a program that is wrong", () => {
  const changed = (change: (program: LayerProgram) => void): LayerProgram => {
    const program = structuredClone(DECODER_PROGRAM);
    change(program);
    return program;
  };
  type Loose = Record<string, unknown>;
  it.each([
    ["operators", 1, "parameters", ["wx"], /operator qkv has parameters "wx"; use one of attentionNorm, wq/],
    ["operators", 3, "writes", ["nothing"], /operator rotary positions has writes "nothing"/],
    [
      "operators",
      2,
      "when",
      "ulysses",
      /operator projection bias has when "ulysses"; use one of tiedEmbeddings/,
    ],
    ["tensors", 4, "kind", "offset", /tensor queryBias has kind "offset"; use one of matrix, gain, bias/],
    ["tensors", 4, "initial", "twos", /tensor queryBias has initial "twos"/],
    ["values", 3, "rows", "twice", /value headGains has rows "twice"; use one of .*once/],
    ["tensors", 1, "unit", "head", /tensor wq has unit "head"; use one of qkv/],
    ["tensors", 1, "rows", "wide", /tensor wq has rows "wide"; use one of hidden, query/],
    ["values", 2, "fate", "lost", /value qkv has fate "lost"; use one of stream, kept/],
    ["values", 2, "when", "sometimes", /value qkv has when "sometimes"; use one of tiedEmbeddings/],
    ["units", 1, "name", "qkv", /unit qkv stands there twice/],
    ["dimensions", 0, "of", "size", /dimension hidden has of "size"; use one of hiddenSize/],
  ] as const)("is refused: %s[%i].%s = %j", (list, at, member, value, message) => {
    const wrong = changed((program) => {
      (program[list][at] as unknown as Loose)[member] = value;
    });
    expect(() => checkedProgram(wrong)).toThrow(message);
  });
});
