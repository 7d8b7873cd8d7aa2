import { expect, it } from "vitest";
import { didYouMean, nearestWord } from "./nearest.ts";

const fields = [
  "name",
  "model",
  "sequenceLengthTokens",
  "globalBatchTokens",
  "steps",
  "seed",
  "gpusPerNode",
  "plan",
];

it.each([
  ["modle", "model"],
  ["nmae", "name"],
  ["step", "steps"],
  ["sequenceLenghtTokens", "sequenceLengthTokens"],
  ["sequence_length_tokens", "sequenceLengthTokens"],
  ["SequenceLength", "sequenceLengthTokens"],
  ["gpus", "gpusPerNode"],
])("takes %s for a slip of %s", (word, meant) => {
  expect(nearestWord(word, fields)).toBe(meant);
});

it.each(["", "x", "comment", "learningRate", "g", "constructor", "n".repeat(1 << 20)])(
  "suggests nothing for %.20s",
  (word) => {
    expect(nearestWord(word, fields)).toBeUndefined();
    expect(didYouMean(word, fields)).toBe("");
  },
);

it.each([
  ["nam", "name"],
  ["stesp", "steps"],
  ["sedd", "seed"],
  ["pt", "tp"],
  ["cuont", "count"],
  ["heds", "heads"],
])("takes %s for a slip of the short %s", (word, meant) => {
  expect(nearestWord(word, [...fields, "count", "repeats", "tp", "pp", "heads", "headSize"])).toBe(meant);
});

it.each([
  ["lr", "peakLearningRate"],
  ["learning_rate", "peakLearningRate"],
  ["min_lr", "minLearningRate"],
  ["warmup", "warmupSteps"],
  ["seqLength", "sequenceLengthTokens"],
  ["seq_len", "sequenceLengthTokens"],
  ["batchSize", "globalBatchTokens"],
  ["globalBatch", "globalBatchTokens"],
  ["max-steps", "steps"],
  ["vocab", "vocabularySize"],
])("knows %s as another word for %s", (word, meant) => {
  const all = [...fields, "peakLearningRate", "minLearningRate", "warmupSteps", "vocabularySize"];
  expect(nearestWord(word, all)).toBe(meant);
});

it("takes nothing for a slip of a single letter", () => {
  expect(nearestWord("x", ["b", "n", "a"])).toBeUndefined();
  expect(nearestWord("t", ["tp"])).toBe("tp");
});

it("prefers the fewest edits", () => {
  expect(didYouMean("llama-6b", ["llama-13b", "llama-65b", "llama-7b"])).toBe(
    "did you mean llama-65b? Otherwise ",
  );
});
