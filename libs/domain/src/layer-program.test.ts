import { describe, expect, it } from "vitest";
import {
  checkedProgram,
  DECODER_PROGRAM,
  operatorLabels,
  programElements,
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
    expect(recomputedOperators(DECODER_PROGRAM).at(-1)?.name).toBe("gate and up");
    expect(repeatedOperators(DECODER_PROGRAM).map(({ name }) => name)).toEqual([
      "attention norm",
      "MLP norm",
      "gated activation",
    ]);
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
    ["operators", 3, "writes", ["nothing"], /operator attention has writes "nothing"/],
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
