// docs/benchmarks/gpu.md out of the lines of JSON that gpu-check left: what passed, and every figure with the
// clocks it was measured at.
import { formatInteger, quantile, validate, type JobSpec, type Plan } from "@internevo/domain";
import {
  fieldsOf,
  listOf,
  numberOf,
  PlanAnswerSchema,
  textOf,
  type CaseLine,
  type CheckResults,
  type Fields,
  type Value,
} from "@internevo/profiles";
import { table } from "./report.ts";

const shown = (value: number | undefined, digits = 1, unit = ""): string =>
  value === undefined ? "" : `${value.toFixed(digits)}${unit}`;
const milliseconds = (seconds: number | undefined): string =>
  shown(seconds === undefined ? undefined : seconds * 1e3, 2, " ms");
const cell = (text: string): string => text.replaceAll("\n", " ");
const median = (gpu: Fields, name: string): number | undefined => numberOf(fieldsOf(gpu[name])["median"]);

/** Clock, power, temperature: the columns that stand beside every figure. */
const CLOCK_COLUMNS = ["SM clock", "power", "temperature"] as const;
const clocks = ({ gpu }: CaseLine): string[] => [
  shown(median(gpu, "smClockMhz"), 0, " MHz"),
  shown(median(gpu, "powerWatts"), 0, " W"),
  shown(median(gpu, "temperatureCelsius"), 0, " °C"),
];

type Row = readonly string[];
const section = (title: string, header: Row, rows: readonly Row[]): string =>
  rows.length === 0 ? "" : `## ${title}\n\n${table(header, rows)}\n`;
const measuredCases = (results: CheckResults, prefix: string): readonly CaseLine[] =>
  results.cases.filter(({ case: name, result }) => name.startsWith(prefix) && Object.keys(result).length > 0);

function outcomes({ cases }: CheckResults): string {
  const commands = [...new Set(cases.map(({ command }) => command))];
  const kinds = ["passed", "absent", "failed", "crashed", "timed-out", "left-out", "interrupted"];
  const rows = commands.map((command) => {
    const of = cases.filter((each) => each.command === command);
    return [
      command,
      ...kinds.map((kind) => String(of.filter(({ outcome }) => outcome === kind).length)),
      shown(
        of.reduce((sum, { seconds }) => sum + (seconds ?? 0), 0),
        0,
        " s",
      ),
      shown(
        of.reduce((sum, { plannedSeconds }) => sum + plannedSeconds, 0),
        0,
        " s",
      ),
    ];
  });
  return section("Outcomes", ["command", ...kinds, "took", "planned"], rows);
}

const notPassed = ({ cases }: CheckResults): string =>
  section(
    "What did not pass",
    ["case", "outcome", "why"],
    cases
      .filter(({ outcome }) => outcome !== "passed")
      .map(({ case: name, outcome, message }) => [`\`${name}\``, outcome, cell(message)]),
  );

function comparisons(results: CheckResults): string {
  const rows = results.cases.flatMap((each) =>
    listOf(each.result["comparisons"]).map((row) => [
      `\`${each.case}\``,
      textOf(row["precision"]),
      textOf(row["against"]),
      numberOf(row["error"])?.toExponential(1) ?? "",
      numberOf(row["limit"])?.toExponential(1) ?? "",
      row["passed"] === true ? "" : "**fails**",
    ]),
  );
  return section("Errors against references", ["case", "precision", "against", "error", "limit", ""], rows);
}

const goals = ({ cases }: CheckResults): string =>
  section(
    "Goals",
    ["goal", "reached", "aim", ""],
    cases.flatMap(({ result }) =>
      listOf(result["goals"]).map((goal) => [
        cell(textOf(goal["what"])),
        shown(numberOf(goal["value"]), 1, ` ${textOf(goal["unit"])}`),
        shown(numberOf(goal["goal"]), 0, ` ${textOf(goal["unit"])}`),
        goal["reached"] === true ? "yes" : "no",
      ]),
    ),
  );

function times(results: CheckResults): string {
  const rows = results.cases.flatMap((each) =>
    listOf(each.result["times"]).map((row) => [
      `\`${each.case}\``,
      cell(textOf(row["name"])),
      milliseconds(numberOf(row["seconds"])),
      shown(numberOf(row["figure"]), 1, ` ${textOf(row["unit"])}`),
      ...clocks(each),
    ]),
  );
  return section("Kernels", ["case", "call", "time", "figure", ...CLOCK_COLUMNS], rows);
}

/** Steps beside the sum of their kernels, where both were measured at a length. */
function steps(results: CheckResults): string {
  const kernelSeconds = new Map(
    measuredCases(results, "kernels.").map(({ result }) => [
      numberOf(result["sequenceLengthTokens"]),
      numberOf(result["kernelSeconds"]),
    ]),
  );
  const rows = measuredCases(results, "step.").map((each) => {
    const { result } = each;
    const step = numberOf(result["medianStepSeconds"]);
    const count = numberOf(result["microBatches"]) ?? 1;
    const kernels = kernelSeconds.get(numberOf(result["sequenceLengthTokens"]));
    const mfu = numberOf(result["mfuOfDataSheet"]);
    return [
      `\`${each.case}\``,
      textOf(result["sequenceLengthTokens"]),
      String(count),
      `${textOf(result["layers"])} (${textOf(result["recomputedLayers"])})`,
      result["deterministic"] === true ? "yes" : "no",
      milliseconds(step),
      shown(numberOf(result["tokensPerSecond"]), 0),
      shown(mfu === undefined ? undefined : 100 * mfu, 1, "%"),
      count === 1 && step !== undefined && kernels !== undefined ? shown((100 * kernels) / step, 1, "%") : "",
      ...clocks(each),
    ];
  });
  return section(
    "Steps of a 7B",
    [
      "case",
      "tokens",
      "n",
      "layers (recomputed)",
      "deterministic",
      "step",
      "tokens/s",
      "causal MFU",
      "kernels alone",
      ...CLOCK_COLUMNS,
    ],
    rows,
  );
}

/** What a prediction of a plan is compared by. */
export interface PredictedPlan {
  readonly stepTimeSeconds: number;
  readonly peakMemoryBytes: number;
}
export interface GpuPageOptions {
  /** Predicts the plans anew, with the profile of this name; without it predictions are those of the kit. */
  readonly predictor?: {
    readonly profile: string;
    readonly predict: (spec: JobSpec, plan: Plan, threadsPerRank: number) => PredictedPlan;
  };
}

const gibibytes = (bytes: number | undefined): string =>
  shown(bytes === undefined ? undefined : bytes / 2 ** 30, 2, " GiB");
/** Of a prediction: how far it is from what was measured, in per cent of that. */
const errorPercent = (predicted: number, measured: number | undefined): number | undefined =>
  measured === undefined ? undefined : 100 * (predicted / measured - 1);
const signed = (percent: number | undefined): string =>
  percent === undefined ? "" : `${percent < 0 ? "" : "+"}${percent.toFixed(1)}%`;
const medianOf = (values: readonly number[]): number | undefined =>
  values.length === 0 ? undefined : quantile(values, 0.5);

/** Plans of the kit: predicted beside measured. */
function plans(results: CheckResults, { predictor }: GpuPageOptions): string {
  const tried = measuredCases(results, "plan.").map((line) => {
    const answer = validate(PlanAnswerSchema, line.result, "profile-invalid", line.case);
    const { piece, medianStepSeconds: seconds, peakMemoryBytes: bytes } = answer;
    const predicted =
      predictor?.predict(piece.spec, piece.plan, answer.kit.threadsPerRank) ?? piece.predicted;
    return {
      line,
      answer,
      predicted,
      time: errorPercent(predicted.stepTimeSeconds, seconds),
      memory: errorPercent(predicted.peakMemoryBytes, bytes),
    };
  });
  const [first] = tried;
  if (!first) return "";
  const rows = tried.map(({ line, answer, predicted, time, memory }) => {
    const { plan, label, spec } = answer.piece;
    const recomputed = plan.recompute ? spec.model.layers : (plan.recomputeLayers ?? 0);
    return [
      `\`${line.case}\``,
      String(plan.microBatchSize),
      String(plan.microBatches),
      String(recomputed),
      milliseconds(predicted.stepTimeSeconds),
      answer.refused === true ? "refused" : milliseconds(answer.medianStepSeconds),
      signed(time),
      gibibytes(predicted.peakMemoryBytes),
      gibibytes(answer.peakMemoryBytes),
      signed(memory),
      `\`${label}\``,
      ...clocks(line),
    ];
  });
  const absolute = (errors: readonly (number | undefined)[]): number | undefined =>
    medianOf(errors.flatMap((error) => (error === undefined ? [] : [Math.abs(error)])));
  const spec = first.answer.piece.spec;
  const intro = `${spec.model.layers} layers of ${spec.model.name} at ${formatInteger(spec.sequenceLengthTokens)} tokens, ${formatInteger(spec.globalBatchTokens)} tokens a step. Predicted with profile ${predictor?.profile ?? first.answer.piece.predicted.profile}. The median error is ${shown(absolute(tried.map(({ time }) => time)), 1, "%")} of the time and ${shown(absolute(tried.map(({ memory }) => memory)), 1, "%")} of the memory.`;
  const header = [
    "case",
    "b",
    "n",
    "recomputed layers",
    "predicted time",
    "measured time",
    "error",
    "predicted memory",
    "measured memory",
    "error",
    "plan",
    ...CLOCK_COLUMNS,
  ];
  return `## Plans: predicted beside measured\n\n${intro}\n\n${table(header, rows)}\n`;
}

/** Ten steps of the same layers by each kind of attention's kernels. */
function losses(results: CheckResults): string {
  const curves = measuredCases(results, "steps.7b.").map(({ result }) => ({
    kernels: textOf(result["kernels"]),
    losses: Array.isArray(result["losses"]) ? (result["losses"] as readonly Value[]).map(numberOf) : [],
  }));
  const steps = Math.max(0, ...curves.map((curve) => curve.losses.length));
  const rows = Array.from({ length: steps }, (_, step) => [
    String(step + 1),
    ...curves.map((curve) => shown(curve.losses[step], 6)),
  ]);
  return section(
    "Ten steps of two layers of a 7B: losses by kernels of attention",
    ["step", ...curves.map(({ kernels }) => kernels)],
    rows,
  );
}

function peers(results: CheckResults): string {
  const ours = new Map(
    measuredCases(results, "ours.").map((each) => [numberOf(each.result["sequenceLengthTokens"]), each]),
  );
  const row = (each: CaseLine, system: string, mine: number | undefined): Row => {
    const step = numberOf(each.result["medianStepSeconds"]);
    return [
      textOf(each.result["sequenceLengthTokens"]),
      system,
      textOf(each.result["layers"]),
      each.result["outOfMemory"] === true ? "out of memory" : milliseconds(step),
      step !== undefined && mine !== undefined ? shown(step / mine, 2, " times ours") : "",
      ...clocks(each),
    ];
  };
  const rows = [...ours.entries()].flatMap(([tokens, own]) => {
    const mine = numberOf(own.result["medianStepSeconds"]);
    const theirs = measuredCases(results, "torch.").filter(
      ({ result }) => numberOf(result["sequenceLengthTokens"]) === tokens,
    );
    return [
      row(own, "InternEvo", undefined),
      ...theirs.map((each) =>
        row(each, `PyTorch ${textOf(each.result["torch"])}, ${textOf(each.result["attention"])}`, mine),
      ),
    ];
  });
  return section(
    "PyTorch on the same GPU",
    ["tokens", "system", "layers", "step", "ratio", ...CLOCK_COLUMNS],
    rows,
  );
}

function longest(results: CheckResults): string {
  const ours = results.cases.find(({ case: name }) => name === "longest.ours");
  const theirs = results.cases.find(({ case: name }) => name === "longest.torch");
  const rows: Row[] = [];
  if (ours?.result["sequenceLengthTokens"] !== undefined)
    rows.push([
      "InternEvo",
      textOf(ours.result["sequenceLengthTokens"]),
      `${textOf(ours.result["layers"])}`,
      shown(numberOf(ours.result["stepSeconds"]), 1, " s"),
      ...clocks(ours),
    ]);
  if (theirs?.result["longest"] !== undefined)
    rows.push([
      `PyTorch ${textOf(theirs.result["torch"])}`,
      `${textOf(theirs.result["longest"])}${theirs.result["complete"] === true ? "" : " at least"}`,
      `${textOf(theirs.result["layers"])}`,
      "",
      ...clocks(theirs),
    ]);
  return section("The longest sequence", ["system", "tokens", "layers", "step", ...CLOCK_COLUMNS], rows);
}

/** The page's figures as Markdown. */
export function gpuPageBody(results: CheckResults, options: GpuPageOptions = {}): string {
  const [first] = results.runs;
  if (!first) throw new Error("no run among the results");
  const versions = Object.entries(first.versions)
    .filter(([name]) => name !== "device")
    .map(([name, version]) => `${name} ${textOf(version)}`)
    .join(", ");
  const commands = results.runs.map(({ at, commandLine }) => `- ${at}: \`${commandLine}\``).join("\n");
  const warning = first.small
    ? "**These figures are those of a model of a GPU on a CPU, in small. They say nothing about a GPU.**\n\n"
    : "";
  const head = `${warning}${first.device.replace(/^cuda: /, "")}${versions ? `; ${versions}` : ""}; build ${first.build}.\n\n${commands}\n\nTimes are the best of several rounds for kernels and medians for steps. Clock, power and temperature are medians over the case.\n`;
  return [
    head,
    outcomes(results),
    notPassed(results),
    goals(results),
    steps(results),
    plans(results, options),
    losses(results),
    peers(results),
    longest(results),
    times(results),
    comparisons(results),
  ]
    .filter(Boolean)
    .join("\n")
    .trimEnd();
}
