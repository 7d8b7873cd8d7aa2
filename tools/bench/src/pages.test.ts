import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { overallOf, writeAccuracyPage } from "./accuracy-page.ts";
import { statisticsOf, type Compared } from "./accuracy-statistics.ts";
import { writeMemoryPage } from "./memory-page.ts";
import { writeOverlapPage } from "./overlap-page.ts";
import { writeRankingPage } from "./ranking-page.ts";
import type { Circumstances } from "./report.ts";
import { writeSystemsPage } from "./systems-page.ts";

let directory = "";
beforeEach(async () => void (directory = await mkdtemp(join(tmpdir(), "internevo-test-pages-"))));
afterEach(() => rm(directory, { recursive: true }));

const circumstances: Circumstances = {
  date: "2026-01-02",
  command: "a command",
  processor: "processor",
  cores: 2,
  node: "v24.0.0",
  kernel: "Linux 6",
  loadBefore: 0.1,
  loadAfter: 0.2,
  seconds: 60,
  stolen: 0,
};

/** The words between a page's marks: without tables, figures, and what names the run's own machine. */
const wordsOf = (page: string): string[] =>
  page
    .slice(page.indexOf("<!-- figures"), page.indexOf("<!-- end of figures"))
    .split("\n")
    .filter((line) => !/^\||^- (?:Command|Machine|Noise|this machine|\d nodes)\b/.test(line) && line !== "")
    .map((line) => line.replace(/\d[\d,.]*\d|\d/g, "0"));

async function expectSameWords(name: string): Promise<void> {
  const written = await readFile(join(directory, `${name}.md`), "utf8");
  const kept = await readFile(join(import.meta.dirname, `../../../docs/benchmarks/${name}.md`), "utf8");
  expect(wordsOf(kept)).toEqual(wordsOf(written));
}

it("keeps the page of accuracy in the words of its program", async () => {
  const one = (rank: number): Compared => ({
    plan: `b${rank}`,
    rank,
    candidate: true,
    predictedSeconds: rank,
    range: null,
    predictedBytes: 1,
    measuredBytes: 1,
    runs: [rank, rank * 1.1, rank * 1.2],
    order: [rank, rank + 2, rank + 4],
  });
  const compared = [one(1), one(2)];
  const row = { place: "this machine", job: "a job", runnable: 2, compared, warnings: [] };
  const statistics = statisticsOf(compared);
  const rows = [
    { ...row, steps: 5, statistics },
    { ...row, steps: 3, statistics },
  ];
  await writeAccuracyPage(directory, {
    benchmark: "accuracy",
    device: "cpu",
    settings: { plans: 2, repeat: 3, steps: 5, seed: 1 },
    circumstances,
    profiles: [{ place: "this machine", notes: ["a note"] }],
    overall: overallOf(rows),
    rows,
  });
  await expectSameWords("accuracy-cpu");
});

it("keeps the page of ranking in the words of its program", async () => {
  const plans = Array.from({ length: 50 }, (_, index): Compared => ({
    plan: `b${index}`,
    rank: index + 1,
    candidate: index < 10,
    predictedSeconds: 1 + index,
    range: null,
    runs: [1 + index],
    predictedBytes: 1,
    measuredBytes: 1,
  }));
  await writeRankingPage(directory, {
    benchmark: "ranking",
    device: "cpu",
    settings: { repeat: 3, steps: 5, seed: 1 },
    circumstances,
    notes: ["a note"],
    jobs: [{ job: "a job", runnable: 55, ranks: 2, globalBatchTokens: 2048, plans }],
  });
  const page = await readFile(join(directory, "ranking-cpu.md"), "utf8");
  expect(page).toContain("| a job | 1–10 | 188 (102 – 1024) | 188 (102 – 1024) |");
  expect(page).toContain("| a job | 50 | 55 | 1.00 | 1 | 4 of 4 |");
  await expectSameWords("ranking-cpu");
});

it("keeps the page of memory in the words of its program", async () => {
  const trace = {
    requestBytes: 688 * 2 ** 20,
    survivorBytes: 2 ** 20,
    lostBytesBySegment: [],
    reservedBytes: 1,
  };
  const fits = {
    system: "internevo",
    sequenceLengthTokens: 128,
    plan: null,
    peakMemoryBytes: 1,
    next: { sequenceLengthTokens: 256, plan: null, leastBytes: 2 },
  } as const;
  const ran = { ran: { sequenceLengthTokens: 128, peakMemoryBytes: 1, stepSeconds: 1 }, refused: [] };
  await writeMemoryPage(directory, {
    benchmark: "memory",
    circumstances,
    rows: [
      {
        model: "llama-7b",
        sequenceLengthTokens: 4096,
        plan: "b1",
        liveBytes: 10,
        plannedBytes: 11,
        reservedBytes: 12,
        strandedBytes: 1,
      },
    ],
    mlp: {
      shape: { layers: 80, rows: 1, hiddenSize: 1, ffnHiddenSize: 1, elementBytes: 2 },
      separate: { ...trace, strandedBytesByLayer: [2 ** 30] },
      consolidated: { ...trace, strandedBytesByLayer: [2 ** 20] },
    },
    paper: { model: "llama-7b", ranks: 128, limitBytes: 80e9, longest: [fits] },
    small: {
      model: "llama-0.8m",
      ranks: 4,
      limitBytes: 48 * 2 ** 20,
      unitTokens: 128,
      longest: [{ ...fits, ...ran }],
    },
  });
  await expectSameWords("memory");
});

it("keeps the page of overlap in the words of its program", async () => {
  const each = {
    rounds: [1, 1, 1],
    stepSeconds: 1,
    memoryBytes: 1,
    hidden: {
      laneSeconds: 1,
      workingSeconds: 1,
      couldSeconds: 1,
      hiddenSeconds: 1,
      waits: {},
      ownCommunicationSeconds: 0,
      share: 1,
    },
  };
  await writeOverlapPage(directory, {
    benchmark: "overlap",
    testbed: "2 nodes of 1 rank, links of 500 Mbit/s each way",
    model: "llama-3.4m",
    microBatches: 2,
    circumstances,
    rows: [
      {
        sharding: "parameters",
        sequenceLengthTokens: 512,
        plan: "b1",
        granularities: (["none", "block", "intra-layer", "selective"] as const).map((id) => ({
          ...each,
          id,
        })),
      },
    ],
  });
  await expectSameWords("overlap");
});

it("keeps the page of systems in the words of its program", async () => {
  await writeSystemsPage(directory, {
    benchmark: "systems",
    testbed: "2 nodes of 1 rank, links of 250 Mbit/s each way",
    globalBatchTokens: 2048,
    memoryPerRank: "512MiB",
    device: "cpu",
    circumstances,
    rows: [
      {
        model: "llama-0.8m",
        sequenceLengthTokens: 256,
        systems: (["internevo", "megatron", "ulysses"] as const).map((system) => ({
          system,
          feasible: 0,
          tried: [],
          winner: null,
        })),
        overMegatron: 1,
        overUlysses: 1,
      },
    ],
  });
  await expectSameWords("systems");
});
