import { CostModel, planFault } from "@internevo/cost-model";
import { planLabel, ProblemError, type JobSpec, type Plan, type Prediction, type Profile, type TimeBreakdown } from "@internevo/domain";
import { changesBetween, type FieldChange } from "./differences.ts";

/** One term of two plans; `difference` is b − a. */
export interface Term {
  readonly name: string;
  readonly a: number;
  readonly b: number;
  readonly difference: number;
}

export interface Explanation {
  readonly a: { readonly plan: Plan; readonly predicted: Prediction; readonly fits: boolean };
  readonly b: { readonly plan: Plan; readonly predicted: Prediction; readonly fits: boolean };
  readonly changes: readonly FieldChange[];
  /** Seconds of a step by cause, the largest difference first; they add up to the difference of the step times. */
  readonly time: readonly Term[];
  /** Bytes of the fullest rank by line, the largest difference first. */
  readonly memory: readonly Term[];
  readonly summary: string;
}

const CAUSES: Readonly<Record<keyof TimeBreakdown, string>> = {
  computeSeconds: "computing",
  recomputeSeconds: "recomputing activations",
  sequenceCommunicationSeconds: "exchanging activations within a sequence",
  parameterCommunicationSeconds: "gathering parameters and scattering gradients",
  gradientCommunicationSeconds: "reducing gradients over replicas",
  pipelineBubbleSeconds: "pipeline bubbles",
  pipelineCommunicationSeconds: "messages between stages",
  updateSeconds: "the update",
};

const byDifference = (x: Term, y: Term): number => Math.abs(y.difference) - Math.abs(x.difference);

function terms(a: Readonly<Record<string, number>>, b: Readonly<Record<string, number>>): Term[] {
  const names = [...new Set([...Object.keys(a), ...Object.keys(b)])];
  return names.map((name) => ({ name, a: a[name] ?? 0, b: b[name] ?? 0, difference: (b[name] ?? 0) - (a[name] ?? 0) })).filter((term) => term.a !== 0 || term.b !== 0).sort(byDifference);
}

const milliseconds = (seconds: number): string => (seconds >= 1 ? `${seconds.toFixed(2)} s` : `${(seconds * 1e3).toFixed(seconds < 0.01 ? 2 : 1)} ms`);

/** The causes on one side of the balance, the largest first; what is under a hundredth of the step is left out. */
function causes(time: readonly Term[], sign: 1 | -1, step: number): string {
  const listed = time.filter(({ difference }) => difference * sign > step / 100).slice(0, 3);
  return listed.map(({ name, difference }) => `${milliseconds(Math.abs(difference))} of ${CAUSES[name as keyof TimeBreakdown]}`).join(", ");
}

function summaryOf(a: Prediction, b: Prediction, time: readonly Term[]): string {
  const [one, two] = [a.stepTimeSeconds, b.stepTimeSeconds];
  if (Math.abs(one - two) < 1e-9 * one) return "A and B take the same time.";
  const aWins = one < two;
  const ratio = aWins ? two / one : one / two;
  const saved = causes(time, aWins ? 1 : -1, one);
  const paid = causes(time, aWins ? -1 : 1, one);
  return `${aWins ? "A" : "B"} is ${((ratio - 1) * 100).toFixed(1)}% faster (${milliseconds(Math.abs(one - two))} a step)${saved === "" ? "" : `: it saves ${saved}`}${paid === "" ? "" : `${saved === "" ? ": it" : ", and"} pays ${paid}`}.`;
}

/**
 * How one plan wins over another, term by term.
 * @throws ProblemError `plan-invalid` for a plan whose factors do not divide the job: it has no time.
 */
export function explain(job: JobSpec, profile: Profile, a: Plan, b: Plan): Explanation {
  const model = new CostModel(job, profile);
  const side = (plan: Plan, name: string): Explanation["a"] => {
    const fault = planFault(plan, job);
    if (fault !== null) {
      throw new ProblemError("plan-invalid", `plan ${name} does not divide the job: ${fault.message}`, [{ field: name, value: planLabel(plan), message: `${fault.reason}: ${fault.message}`, remedy: "ask why-not for the smallest change that makes it feasible" }]);
    }
    const predicted = model.predict(plan);
    return { plan, predicted, fits: predicted.peakMemoryBytes <= job.cluster.memoryPerGpuBytes };
  };
  const [first, second] = [side(a, "A"), side(b, "B")];
  const time = terms(first.predicted.time, second.predicted.time);
  return { a: first, b: second, changes: changesBetween(a, b), time, memory: terms(first.predicted.memory, second.predicted.memory), summary: summaryOf(first.predicted, second.predicted, time) };
}
