import { isOpenPlanChange, planLabel, type Plan, type PlanChangeState } from "@internevo/domain";
import type { InternEvoClient } from "@internevo/client";

/** What is stored of a run's plans; they are told apart by their labels. */
export interface StoredPlans {
  readonly changes: readonly {
    readonly state: PlanChangeState;
    readonly from: string;
    readonly to: string;
    readonly appliedAtStep: number | null;
  }[];
  /** By attempt. */
  readonly attempts: readonly string[];
  /** What its next attempt would go by. */
  readonly run: string | null;
}

/** How often the plan of a run's attempts may change in all, by how its one change of plan ended. */
const SWITCHES: Partial<Record<PlanChangeState, number>> = { kept: 1, returned: 2 };

/** A run that was asked for one change of its plan is in the old plan or in the new one, never between. */
export function brokenPlanPromises({ changes, attempts, run }: StoredPlans): string[] {
  const broken: string[] = [];
  if (changes.length > 1) broken.push(`its plan was changed ${changes.length} times, and was asked for once`);
  const [change] = changes;
  if (change === undefined) return broken;
  const { state, from, to } = change;
  if (isOpenPlanChange(state)) broken.push(`its change of plan is still ${state}`);
  const now = state === "kept" ? to : from;
  if (run !== null && run !== now) broken.push(`its change of plan is ${state}, and its plan is ${run}`);
  const other = attempts.find((plan) => plan !== from && plan !== to);
  if (other !== undefined) broken.push(`an attempt had the plan ${other}, which is neither`);
  const switches = attempts.filter((plan, index) => index > 0 && plan !== attempts[index - 1]).length;
  const most = SWITCHES[state] ?? 0;
  if (switches > most) broken.push(`its attempts changed their plan ${switches} times: it is ${state}`);
  return broken;
}

/** Asks each job once for the plan that it tried and did not choose; every other one keeps it. */
export class PlanAsker {
  readonly #client: InternEvoClient;
  readonly #seed: number;
  readonly #asked = new Set<string>();
  /** Why nobody could be asked, by how often: most are the API's death. */
  readonly refusals: Record<string, number> = {};

  constructor(client: InternEvoClient, seed: number) {
    this.#client = client;
    this.#seed = seed;
  }

  /** How many jobs were asked. */
  get count(): number {
    return this.#asked.size;
  }

  /** Whatever is in its way now is written down: it is asked again in the next turn. */
  async ask(id: string, number: number): Promise<void> {
    if (this.#asked.has(id)) return;
    try {
      await this.#askOnce(id, number);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      this.refusals[why] = (this.refusals[why] ?? 0) + 1;
    }
  }

  async #askOnce(id: string, number: number): Promise<void> {
    const { state, chosen, trials } = await this.#client.getJob(id);
    if (state !== "running" || chosen === null) return;
    const label = planLabel(chosen.plan);
    const other = trials
      .map(({ candidate }) => candidate.plan)
      .find((plan: Plan) => planLabel(plan) !== label);
    if (other === undefined) return;
    const change = { plan: other, gainThreshold: number % 2 === 0 ? -1 : 1, compareSteps: 5 };
    // The same key again: an answer that was lost makes no second change.
    await this.#client.changePlan(id, change, { idempotencyKey: `chaos-${this.#seed}-plan-${number}` });
    this.#asked.add(id);
  }
}
