import { expect, it } from "vitest";
import { ATTEMPT_STATES, FAILURE_CODES, TRIAL_STATES } from "./execution.ts";
import { JOB_STATES } from "./job.ts";
import { MEMORY_LINES, memoryLineLook, memoryLineName, SERIES_COLOURS, termWords } from "./memory-lines.ts";
import { NAMED_MODELS, type Model } from "./model.ts";
import { REJECTION_REASONS } from "./planning.ts";
import {
  ATTEMPT_STATE_WORDS,
  FAILURE_WORDS,
  JOB_STATE_WORDS,
  lowered,
  memoryPlaceName,
  modelExtras,
  modelWords,
  planChanges,
  rankWords,
  REJECTION_WORDS,
  rejectionCounts,
  tieWords,
  TRIAL_STATE_WORDS,
  verdictDoubt,
} from "./words.ts";

it("says what a rank counts: families of plans", () => {
  expect([1, 2, 1005].map(rankWords)).toEqual([
    "rank 1: no other family of plans is ahead of it",
    "rank 2: the best plan of 1 family is ahead of it",
    "rank 1,005: the best plans of 1,004 families are ahead of it",
  ]);
});

it("says of a model what it has beyond its sizes, and of most nothing", () => {
  const model = NAMED_MODELS["llama-7b"] as Model;
  expect(modelExtras(model)).toEqual([]);
  expect(modelWords(model)).toBe("llama-7b");
  expect(
    modelWords({
      ...model,
      headSize: 256,
      queryKeyNorm: true,
      queryKeyValueBias: true,
      slidingWindowTokens: 4096,
      ropeScaling: { kind: "yarn", factor: 4, originalPositions: 32_768 },
    }),
  ).toBe(
    "llama-7b with heads of 256, norms of q and k, biases of q, k and v, a window of 4,096 tokens, positions scaled 4 times (yarn)",
  );
});

it("has words for everything that people are told of", () => {
  for (const state of JOB_STATES) expect(JOB_STATE_WORDS[state]).toMatch(/^[A-Z]/);
  for (const state of TRIAL_STATES) expect(TRIAL_STATE_WORDS[state]).toMatch(/^[A-Z]/);
  for (const state of ATTEMPT_STATES) expect(ATTEMPT_STATE_WORDS[state]).toMatch(/^[A-Z]/);
  for (const code of FAILURE_CODES) expect(FAILURE_WORDS[code]).toMatch(/^[A-Z]/);
  for (const reason of REJECTION_REASONS) expect(REJECTION_WORDS[reason].name).toMatch(/^[A-Z]/);
});

it("gives every line of memory one look and one name, different from all others", () => {
  const lines = Object.keys(MEMORY_LINES);
  expect(
    new Set(lines.map((line) => `${memoryLineLook(line).colour} ${memoryLineLook(line).pattern}`)).size,
  ).toBe(lines.length);
  expect(new Set(lines.map(memoryLineName)).size).toBe(lines.length);
  for (const line of lines) expect(SERIES_COLOURS.light[memoryLineLook(line).colour]).toMatch(/^#/);
  expect([memoryLineName("optimizerStates"), memoryLineName("somethingNewBytes")]).toEqual([
    "Optimizer states",
    "Something new",
  ]);
});

it("has words for what the trainer calls the places of its memory", () => {
  expect(
    [
      "reduceWorkspace",
      "layers.11, in flight 1.input",
      "firstMoment",
      "inverseRms",
      "output, in flight 0",
    ].map(memoryPlaceName),
  ).toEqual([
    "gradient reduction workspace",
    "layer 11, in flight 1, input",
    "first moment",
    "inverse RMS",
    "output, in flight 0",
  ]);
});

it("keeps abbreviations in sentences", () => {
  expect(
    ["Optimizer states", "RoPE tables", "All-to-all buffers", "MFU, causal", "A rank was lost"].map(lowered),
  ).toEqual(["optimizer states", "RoPE tables", "all-to-all buffers", "MFU, causal", "a rank was lost"]);
  expect([termWords("computeSeconds"), termWords("reduceStaging"), termWords("ropeTables")]).toEqual([
    "compute",
    "gradient reduction buffers",
    "RoPE tables",
  ]);
});

it("says what changes, and why plans are rejected, without names of fields", () => {
  expect(
    planChanges([
      { field: "microBatches", from: 4, to: 2 },
      { field: "recompute", from: false, to: true },
      { field: "recomputeLayers", from: undefined, to: 3 },
      { field: "forwardOverlap", from: "none", to: "block" },
    ]),
  ).toBe(
    "micro-batches (n) 4 → 2, activation recomputation (a) no → yes, recomputed layers (k) none → 3, forward overlap none → by block",
  );
  expect(
    rejectionCounts({ "chunks-not-possible": 96, "memory-exceeded": 5748, "heads-not-divisible": 0 }),
  ).toBe("does not fit in memory 5,748, chunks don't fit 96");
});

it("says of ties how many there are", () => {
  expect([tieWords(1, 10), tieWords(2, 2), tieWords(5, 5), tieWords(3, 10)]).toEqual([
    undefined,
    "Both plans may be the fastest: their ranges overlap, and only trials tell them apart.",
    "All 5 plans may be the fastest: their ranges overlap, and only trials tell them apart.",
    "3 of these 10 plans may be the fastest: their ranges overlap, and only trials tell them apart.",
  ]);
});

it("says what a verdict about a configuration does not know", () => {
  const exact = { option: "a" };
  const memory = (is: "too small" | "too large") => ({ option: "b", errs: { memory: is } });
  const time = { option: "c", errs: { time: "too short" as const } };
  expect(verdictDoubt([exact], true)).toBeNull();
  expect(verdictDoubt([exact, memory("too small"), time], true)).toBe(
    "not exact: the predicted memory is too small, for b; the predicted time is too short, for c; it may not fit",
  );
  expect(verdictDoubt([memory("too large")], false)).toBe(
    "not exact: the predicted memory is too large, for b; it may fit all the same",
  );
  expect(verdictDoubt([memory("too large")], true)).toBe(
    "not exact: the predicted memory is too large, for b",
  );
});
