import {
  cheapestCluster,
  estimatesOf,
  explain,
  largestSequence,
  paretoFront,
  sweep,
  whyNot,
  type Explanation,
} from "@internevo/advisor";
import { CostModel, sumLines } from "@internevo/cost-model";
import type {
  CheapestClusterRequest,
  ClusterChoiceAnswer,
  ExplanationAnswer,
  ExportedConfigurationAnswer,
  FrameworkName,
  ImportRequest,
  LargestSequenceAnswer,
  PlanMemoryAnswer,
  SweepAnswerRow,
  SweptAxis,
  WhyNotAnswer,
} from "@internevo/contracts";
import {
  plannedMemoryBytes,
  ProblemError,
  worldSize,
  type Candidate,
  type Estimates,
  type JobSpec,
  type PartialPlan,
  type Plan,
  type Profile,
  type Tried,
} from "@internevo/domain";
import {
  exportBest,
  exportPredicted,
  importConfiguration,
  type ImportedConfiguration,
} from "@internevo/frameworks";
import type { PlanOfJob } from "@internevo/plan";

interface Subject {
  readonly spec: JobSpec;
  readonly profile: Profile;
}

/**
 * One question about plans, small enough to be a turn of a thread: sweeps are asked value by value, fronts
 * some points at a time.
 */
export type Question =
  | ({
      readonly kind: "why-not";
      readonly plan: Plan | PartialPlan;
      readonly trials: readonly Tried[];
    } & Subject)
  | ({
      readonly kind: "explain";
      readonly a: PlanOfJob;
      readonly b: PlanOfJob;
      readonly measured: Explanation["measured"];
    } & Subject)
  | ({ readonly kind: "memory"; readonly plan: PlanOfJob } & Subject)
  | ({ readonly kind: "sweep"; readonly axis: SweptAxis; readonly value: number } & Subject)
  | ({ readonly kind: "largest-sequence"; readonly unitTokens: number; readonly sequences: number } & Subject)
  | ({ readonly kind: "pareto"; readonly points: number } & Subject)
  | ({ readonly kind: "cluster"; readonly nodes: number } & Pick<
      CheapestClusterRequest,
      "tokens" | "seconds" | "pricePerGpuHour"
    > &
      Subject)
  | ({
      readonly kind: "estimates";
      readonly planned: readonly JobSpec[];
      readonly remedy: Pick<Estimates, "measuredBy" | "planWith">;
    } & Subject)
  | ({
      readonly kind: "export";
      /** Null: the best that the framework can say. */
      readonly plan: PlanOfJob | null;
      readonly framework: FrameworkName;
    } & Subject)
  | ({ readonly kind: "import" } & Pick<ImportRequest, "framework" | "files" | "nodes" | "gpusPerNode">);

export interface Answers {
  readonly "why-not": WhyNotAnswer;
  readonly explain: ExplanationAnswer;
  readonly memory: PlanMemoryAnswer;
  readonly sweep: SweepAnswerRow;
  readonly "largest-sequence": LargestSequenceAnswer;
  readonly pareto: readonly Candidate[];
  /** Null: no plan is feasible there. */
  readonly cluster: ClusterChoiceAnswer | null;
  /** Null: all is measured. */
  readonly estimates: Estimates | null;
  readonly export: ExportedConfigurationAnswer;
  readonly import: ImportedConfiguration;
}

/** Memory of one rank of each pipeline stage by line. */
function memoryOf(spec: JobSpec, profile: Profile, plan: PlanOfJob): PlanMemoryAnswer {
  const ranks = worldSize(plan) / plan.pipelineParallel;
  const stages = new CostModel(spec, profile)
    .stageMemory(plan)
    .map((lines, stage) => ({ stage, ranks, bytes: sumLines(lines), lines }));
  const fullestStage = stages.reduce(
    (fullest, { bytes }, stage) => (bytes > (stages[fullest]?.bytes ?? 0) ? stage : fullest),
    0,
  );
  return { plan, memoryModel: spec.memoryModel, limitBytes: plannedMemoryBytes(spec), fullestStage, stages };
}

function imported({
  framework,
  files,
  nodes,
  gpusPerNode,
}: Extract<Question, { kind: "import" }>): ImportedConfiguration {
  const [first, ...others] = files;
  if (first === undefined) throw new Error("an import has at least one file");
  if (nodes !== undefined && gpusPerNode === undefined)
    throw new ProblemError("bad-request", "nodes needs gpusPerNode", [
      {
        field: "gpusPerNode",
        message: "is missing",
        remedy: "give both, or neither where the configuration says them",
      },
    ]);
  return importConfiguration(
    framework,
    [first, ...others],
    gpusPerNode === undefined ? null : { nodes: nodes ?? 1, gpusPerNode },
  );
}

async function answerOf(question: Question): Promise<unknown> {
  switch (question.kind) {
    case "why-not":
      return whyNot(question.spec, question.profile, question.plan, question.trials);
    case "explain":
      return explain(question.spec, question.profile, question.a, question.b, question.measured);
    case "memory":
      return memoryOf(question.spec, question.profile, question.plan);
    case "sweep":
      return sweep(question.spec, question.profile, question.axis, [question.value])[0];
    case "largest-sequence":
      return largestSequence(question.spec, question.profile, {
        unitTokens: question.unitTokens,
        sequences: question.sequences,
      });
    case "pareto":
      return paretoFront(question.spec, question.profile, { points: question.points });
    case "cluster": {
      const { nodes, tokens, seconds, pricePerGpuHour } = question;
      return (
        cheapestCluster(question.spec, question.profile, {
          nodes: [nodes],
          tokens,
          seconds,
          ...(pricePerGpuHour === undefined ? {} : { pricePerGpuHour }),
        }).considered[0] ?? null
      );
    }
    case "estimates":
      return estimatesOf(question.spec, question.planned, question.profile, question.remedy) ?? null;
    case "export":
      return question.plan === null
        ? exportBest(question.framework, question.spec, question.profile)
        : exportPredicted(question.framework, question.spec, question.plan, question.profile);
    case "import":
      return imported(question);
  }
}

export const answer = <Kind extends Question["kind"]>(
  question: Extract<Question, { kind: Kind }>,
): Promise<Answers[Kind]> => answerOf(question) as Promise<Answers[Kind]>;
