import { planLabel, totalParameters, type Profile } from "@internevo/domain";
import { planJob } from "@internevo/search";
import { circumstancesText, table, writePage, type Circumstances } from "../report.ts";
import { ablationSections } from "./ablation-page.ts";
import type { Ablations } from "./ablations.ts";
import { arithmeticText, judgedRows } from "./arithmetic.ts";
import type { Bar } from "./bars.ts";
import { choiceOf, exposedAndWhole, keptPerLayer, type Case, type RowResult } from "./evaluate.ts";
import { isGood, type Choice } from "./judgements.ts";
import type { ScalabilityResult } from "./longest.ts";
import { paperJob, SYSTEM_NAMES } from "./paper.ts";
import {
  bandwidthChart,
  longestChart,
  memoryAndCommunication,
  memoryParts,
  MEMORY_PARTS,
  mfuChart,
  peakChart,
  ratioChart,
  speedChart,
  stackChart,
  whoText,
} from "./pictures.ts";

export interface Reproduction {
  readonly cases: readonly Case[];
  readonly rows: readonly RowResult[];
  readonly scalability: readonly ScalabilityResult[];
  readonly bars: readonly Bar[];
  readonly ablations: Ablations;
  readonly profile: Profile;
}

const percent = (value: number): string => `${(value * 100).toFixed(1)}%`;
const gigabytes = (bytes: number): string => (bytes / 1e9).toFixed(1);
const speed = (choice: Choice | null): string =>
  choice === null ? "nothing fits" : choice.predicted.tokensPerGpuPerSecond.toFixed(0);
const short = (model: string): string => model.replace("llama-", "").toUpperCase();

const CASES_LEGEND = [
  "- *TGS*: tokens per GPU and second.",
  "- *MFU*: model FLOP/s utilization. *Causal* counts the attention that a causal mask leaves, *whole* counts the whole square as the paper does.",
  "- *GB*: memory of the fullest GPU.",
  "- *In the paper's dimensions*: TGS of the best plan among the paper's ten dimensions.",
  "- *Megatron-LM*, *DeepSpeed*: TGS of the best plan that such a system can express.",
].join("\n");

function casesTable(cases: readonly Case[]): string {
  return table(
    [
      "model",
      "length",
      "our best plan, of the complete space",
      "TGS",
      "MFU causal",
      "MFU whole",
      "GB",
      "in the paper's dimensions",
      "Megatron-LM",
      "DeepSpeed",
      "InternEvo : Megatron : DeepSpeed",
    ],
    cases.map((row) => {
      const { complete } = row;
      const [ours, megatron, ulysses] = (["internevo", "megatron", "ulysses"] as const).map(
        (system) => choiceOf(row, system)?.predicted.tokensPerGpuPerSecond ?? 0,
      ) as [number, number, number];
      const ratio =
        ulysses > 0 ? `${(ours / ulysses).toFixed(2)} : ${(megatron / ulysses).toFixed(2)} : 1` : "–";
      return [
        short(row.model),
        `${row.lengthK}k`,
        `\`${planLabel(complete.plan)}\``,
        speed(complete),
        percent(complete.predicted.mfu),
        percent(complete.predicted.mfuFullAttention),
        gigabytes(complete.predicted.peakMemoryBytes),
        speed(row.paper),
        speed(row.megatron),
        speed(row.ulysses),
        ratio,
      ];
    }),
  );
}

function rowsTable(rows: readonly RowResult[]): string {
  return table(
    [
      "model",
      "length",
      "system",
      "plan of the paper",
      "TGS",
      "MFU causal",
      "MFU whole",
      "GB",
      "rank",
      "behind the best",
    ],
    rows.map(({ model, lengthK, system, plan, predicted, rank, behind, feasible }) => [
      short(model),
      `${lengthK}k`,
      SYSTEM_NAMES[system],
      `\`${planLabel(plan).replace(/ ov.*$/, "")}\``,
      predicted?.tokensPerGpuPerSecond.toFixed(0) ?? "–",
      percent(predicted?.mfu ?? 0),
      percent(predicted?.mfuFullAttention ?? 0),
      gigabytes(predicted?.peakMemoryBytes ?? 0),
      feasible ? (rank ?? "–") : "does not fit",
      behind === null ? "–" : percent(behind),
    ]),
  );
}

const barsTable = (bars: readonly Bar[]): string =>
  table(
    ["bar", "checked", "exceptions", "missed"],
    bars.map(({ name, checked, exceptions, missed }) => [name, checked, exceptions.length, missed.length]),
  );

const exceptionsText = (bars: readonly Bar[]): string =>
  bars
    .filter(({ exceptions, missed }) => exceptions.length + missed.length > 0)
    .map(({ name, exceptions, missed }) =>
      [
        `**${name}**`,
        "",
        ...missed.map((line) => `- missed: ${line}`),
        ...exceptions.map((line) => `- ${line}`),
      ].join("\n"),
    )
    .join("\n\n");

function scalabilityText(results: readonly ScalabilityResult[]): string {
  const at = table(
    ["model", "length", "system", "plan", "GB", "MFU whole, predicted", "MFU, the paper's"],
    results.flatMap(({ model, lengthK, atPaper, measuredMfu }) =>
      (["internevo", "megatron", "ulysses"] as const).map((system) => {
        const choice = atPaper[system];
        const measured = system === "ulysses" ? "time-out" : percent(measuredMfu[system]);
        return [
          short(model),
          `${lengthK}k`,
          SYSTEM_NAMES[system],
          choice === null ? "none" : `\`${planLabel(choice.plan)}\``,
          choice === null ? "–" : gigabytes(choice.predicted.peakMemoryBytes),
          choice === null ? "–" : percent(choice.predicted.mfuFullAttention),
          measured,
        ];
      }),
    ),
  );
  const further = table(
    ["model", "who", "longest", "with", "what ends it: the least that the next length needs"],
    results.flatMap(({ model, longest }) =>
      longest.map(({ who, sequenceLengthTokens, best, end }) => [
        short(model),
        whoText(who),
        `${(sequenceLengthTokens / 1024).toFixed(0)}k`,
        best === null ? "–" : `\`${planLabel(best.plan)}\``,
        end,
      ]),
    ),
  );
  return (
    "The first table has the paper's lengths, with the fastest plan of each system:\n\n" +
    `${at}\n\nThe second table says how much further each system goes. ` +
    `It has one sequence for each data-parallel rank and one micro-batch:\n\n${further}`
  );
}

/** The paper's case study: 7B at 256k. */
function caseStudy({ rows, cases }: Reproduction): { text: string; picture: string } {
  const three = rows.filter(({ model, lengthK }) => model === "llama-7b" && lengthK === 256);
  const ours = cases.find(({ model, lengthK }) => model === "llama-7b" && lengthK === 256) as Case;
  const paper = three.find(({ system }) => system === "internevo") as RowResult;
  const parameters = totalParameters(paperJob("llama-7b", 256).model);
  const bars = [
    ...three.map((row) => ({
      label: `${SYSTEM_NAMES[row.system]}, the paper's`,
      memory: row.predicted?.memory ?? {},
    })),
    { label: "InternEvo, our best", memory: ours.complete.predicted.memory },
  ].flatMap(({ label, memory }) =>
    memoryParts(memory).map(({ part, bytes }) => ({ label, part, value: bytes / 1e9 })),
  );
  const shards = paper.plan.parameterSharding * paper.plan.optimizerStateSharding;
  const text = [
    `The paper's plan is \`${planLabel(paper.plan)}\`: ${paper.predicted?.tokensPerGpuPerSecond.toFixed(0)} tokens/GPU/s, ${gigabytes(paper.predicted?.peakMemoryBytes ?? 0)} GB.`,
    `Ours is \`${planLabel(ours.complete.plan)}\`: ${speed(ours.complete)} tokens/GPU/s, ${gigabytes(ours.complete.predicted.peakMemoryBytes)} GB.`,
    "Like the paper's, it recomputes nothing and has no pipeline.",
    `The paper shards the optimizer states by s_ps · s_oss = ${shards}, from 42 GB to 5 GB.`,
    `At its 6 bytes a parameter that is ${gigabytes(6 * parameters)} GB to ${gigabytes((6 * parameters) / shards)} GB.`,
    "Our executor keeps a float32 master copy and two moments, which are 12 bytes a parameter.",
    `That is ${gigabytes(12 * parameters)} GB to ${gigabytes((12 * parameters) / shards)} GB.`,
  ].join(" ");
  return {
    text,
    picture: stackChart(
      "Case study: memory, 7B at 256k",
      "predicted GB of the fullest GPU; dashed: 80 GB",
      bars,
      MEMORY_PARTS,
      "GB",
      80,
    ),
  };
}

function overlapTable(cases: readonly Case[], profile: Profile): string {
  return table(
    ["length", "plan", "TGS with overlap", "without", "gain"],
    cases
      .filter(({ model }) => model === "llama-13b")
      .map(({ lengthK, paper }) => {
        const { exposed, whole } = exposedAndWhole(paperJob("llama-13b", lengthK), paper.plan, profile);
        return [
          `${lengthK}k`,
          `\`${planLabel(paper.plan)}\``,
          exposed.tokensPerGpuPerSecond.toFixed(0),
          whole.tokensPerGpuPerSecond.toFixed(0),
          percent(exposed.tokensPerGpuPerSecond / whole.tokensPerGpuPerSecond - 1),
        ];
      }),
  );
}

/** Where the paper's arithmetic and ours differ, with the numbers. */
function disagreements({ rows, profile }: Reproduction): string {
  const eight = rows.find(
    ({ model, lengthK, system }) => model === "llama-30b" && lengthK === 8 && system === "internevo",
  ) as RowResult;
  const fourBytes = planJob(paperJob("llama-30b", 8, { precision: "bf16" }), profile, {
    top: 1,
    locate: eight.plan,
  }).located;
  const off = rows.filter(({ batchTokens }) => batchTokens !== 4 * 1024 * 1024);
  const first = rows.find(
    ({ model, lengthK, system }) => model === "llama-7b" && lengthK === 32 && system === "internevo",
  ) as RowResult;
  return [
    `- **Activations**: the paper's text keeps 34·bSH a layer, and the planner that its authors published counts 39.3. Our executor keeps ${keptPerLayer(first, profile).toFixed(1)} with sequence parallelism. It computes norm outputs and the product of gate and up again, which costs little. So larger micro-batches fit, and rank first.`,
    "- **Optimizer states**: the paper has 6 bytes a parameter. A float32 master copy and two moments are 12. Our figure is right for what runs. The published planner counts 12 as well.",
    `- **Gradients**: the paper's runs kept 2 bytes, as this page does. 30B at 8k fits with 4 bytes too: ${gigabytes(fourBytes?.predicted?.peakMemoryBytes ?? 0)} GB (${fourBytes?.feasible === true ? "feasible" : "not feasible"}).`,
    "- **Tensor parallelism**: the paper counts one all-gather and one reduce-scatter a layer in the forward pass. Attention and MLP have one of each, so there are two. The backward pass gathers inputs again. In all there are six all-gathers and four reduce-scatters, not three and two.",
    "- **All-to-all**: the paper's 6·bSH and 2·bSH are whole tensors. The measured curves are over the bytes that one rank sends. So both are divided by s_sp. q, k and v travel apart.",
    "- **Overlap**: the paper takes R · max of computation and communication. That slows a layer for communication that ended long before. Ours is max + (R − 1) · min, the same for equal lengths.",
    "- **Other times**: ours have embedding, head and loss, messages between stages and unequal stages. The paper's do not.",
    "- **Parameters**: Ψ = 12H² + 2H has an MLP of two matrices. LLaMA's has three, of 8/3 of the width, rounded up. Its inner widths for 13B and 30B are 13824 and 16384, which 40 and 48 tensor ranks cannot share, neither here nor in Megatron-LM. So Megatron-LM's rows of 1200k and 960k are none of these plans.",
    `- **Batches**: ${off.length} rows do not multiply to 4M tokens in the paper itself (${off.map(({ model, lengthK, system }) => `${short(model)} ${lengthK}k ${SYSTEM_NAMES[system]}`).join(", ")}). They are predicted with the tokens that they have.`,
    "- **MFU**: the paper counts attention over the whole square of a causal mask. This page gives both. At long sequences the causal figure is little more than half.",
  ].join("\n");
}

/** How the predictions compare with what the paper measured, in its own words. */
function findings({ cases, rows }: Reproduction): string {
  const ratios = (system: "megatron" | "ulysses", table_: boolean): number[] => {
    if (!table_)
      return cases.flatMap((row) =>
        row[system] === null
          ? []
          : [row[system].predicted.stepTimeSeconds / row.paper.predicted.stepTimeSeconds],
      );
    return rows
      .filter((row) => row.system === system)
      .flatMap((row) => {
        const ours = rows.find(
          (each) => each.system === "internevo" && each.model === row.model && each.lengthK === row.lengthK,
        );
        return row.predicted && ours?.predicted
          ? [ours.predicted.tokensPerGpuPerSecond / row.predicted.tokensPerGpuPerSecond]
          : [];
      });
  };
  const range = (values: readonly number[]): string =>
    `${Math.min(...values).toFixed(2)}× to ${Math.max(...values).toFixed(2)}×`;
  const alike = cases
    .filter((row) => row.megatron !== null && planLabel(row.megatron.plan) === planLabel(row.paper.plan))
    .map(({ model, lengthK }) => `${short(model)} ${lengthK}k`);
  const judged = judgedRows(rows);
  const chosen = judged.filter(({ judgements }) => isGood(judgements.published)).length;
  const first = judged.filter(({ judgements }) => judgements.published.rank === 1).length;
  const ours = judged.filter(isGood).length;
  return [
    `InternEvo's planner, as its authors published it, chooses the paper's plans. It has ${chosen} of the paper's ${judged.length} InternEvo rows near its best, and ${first} of them are its best. Our arithmetic has ${ours} near its best, because our executor needs less memory. [Which arithmetic](#which-arithmetic-chooses-the-papers-plans) says so row by row.`,
    `InternEvo's best plan is ${range(ratios("megatron", false))} as fast as the best Megatron-style plan. Against the best DeepSpeed-Ulysses-style plan it is ${range(ratios("ulysses", false))} as fast. The rows of the paper's tables among themselves give ${range(ratios("megatron", true))} and ${range(ratios("ulysses", true))}. The paper measured up to 2.29× and 4.8×. [Baselines as they were run](#baselines-as-they-were-run-and-at-their-best) looks for these figures. The predictions give the other systems their best plans, found by the same search, with the same kernels and the same overlap. What is left of the difference is what the plans themselves make.`,
    "One result of the paper is not reproduced: that DeepSpeed-Ulysses' MFU falls up to 32k. With the plans of its table and the measured curves, what is sent for a token stays nearly the same from 4k to 32k. That holds whether it is hidden or not. Meanwhile attention grows, which MFU counts whole.",
    `The paper says that InternEvo's and Megatron-LM's plans coincide for 30B and 65B at 4k. In its tables they do for 30B. Of the best plans here they coincide for ${alike.length === 0 ? "none" : alike.join(", ")}.`,
  ].join("\n\n");
}

export function pageOf(
  reproduction: Reproduction,
  circumstances: Circumstances,
): { body: string; images: Record<string, string> } {
  const { cases, rows, scalability, bars, profile } = reproduction;
  const figure = memoryAndCommunication(rows, profile);
  const study = caseStudy(reproduction);
  const ablations = ablationSections(reproduction.ablations);
  const images = {
    ...ablations.images,
    "reproduce-speed.svg": speedChart(cases, rows),
    "reproduce-mfu.svg": mfuChart(cases, rows),
    "reproduce-ratio.svg": ratioChart(cases, rows),
    "reproduce-peak.svg": peakChart(cases, rows),
    "reproduce-memory.svg": figure.memory,
    "reproduce-communication.svg": figure.communication,
    "reproduce-bandwidth.svg": bandwidthChart(profile),
    "reproduce-case.svg": study.picture,
    "reproduce-longest.svg": longestChart(scalability),
  };
  const body = [
    "This page predicts the evaluation of the paper, and compares it with what the paper measured. These are predictions, not runs. They cover all 84 plans of the paper's tables: four models, seven lengths and three systems, on 128 GPUs of 80 GB, with 4M tokens a step. They cover its four largest lengths too. They use the shipped profile of measured A800 collectives and kernels. Memory is the plan of our executor, unless a table says otherwise. The paper's ablations of memory management and of the simulator's accuracy took runs. Their sections say what stands for a run here.",
    "## Findings",
    findings(reproduction),
    "## Bars",
    "A bar is something that must hold. An *exception* does not meet its bar, and numbers account for it ([exceptions](#exceptions)). What is *missed* has no such account, and makes the command fail.",
    barsTable(bars),
    circumstancesText(circumstances, "How it was made"),
    "## Every model and length",
    "![Speed](images/reproduce-speed.svg)",
    "![MFU](images/reproduce-mfu.svg)",
    "![Ratio](images/reproduce-ratio.svg)",
    "![Peak memory](images/reproduce-peak.svg)",
    CASES_LEGEND,
    casesTable(cases),
    "## The paper's tables",
    "*Rank* and *behind the best* are among the plans of the paper's ten dimensions.",
    rowsTable(rows),
    "## Which arithmetic chooses the paper's plans",
    arithmeticText(rows, profile),
    "## Memory and communication, 7B at 32k",
    "![Memory](images/reproduce-memory.svg)",
    "![Communication](images/reproduce-communication.svg)",
    "## Bandwidth",
    "![Bandwidth](images/reproduce-bandwidth.svg)",
    "## Case study, 7B at 256k",
    study.text,
    "![Case study](images/reproduce-case.svg)",
    "## Overlap, 13B",
    "The table says what overlap is worth for the best plan of the paper's dimensions. " +
      "The paper measured 0.9% to 75.2%, with plans that need it more.",
    overlapTable(cases, profile),
    ...ablations.overlap,
    ...ablations.management,
    ...ablations.ranking,
    ...ablations.baselines,
    "## Largest sequence length",
    "![Largest sequence length](images/reproduce-longest.svg)",
    scalabilityText(scalability),
    "## Where the paper's arithmetic and ours disagree",
    disagreements(reproduction),
    "## Exceptions",
    exceptionsText(bars),
  ].join("\n\n");
  return { body, images };
}

export async function writeReproduction(
  directory: string,
  reproduction: Reproduction,
  circumstances: Circumstances,
): Promise<string> {
  const { body, images } = pageOf(reproduction, circumstances);
  await writePage({ directory, name: "reproduce", title: "The paper's evaluation, predicted", body, images });
  return body;
}
