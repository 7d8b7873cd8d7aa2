import pg from "pg";

/** What is stored of a job that has ended. */
export interface Stored {
  readonly state: string;
  readonly reason: string | null;
  readonly trials: readonly { readonly state: string; readonly measured: boolean }[];
  /** In the order of steps. */
  readonly steps: readonly { readonly step: number; readonly loss: number }[];
  readonly attempts: number;
}

/** Reads what is stored of a job, past the API: what is counted twice there would be hidden. */
export async function storedOf(databaseUrl: string, jobId: string): Promise<Stored> {
  const db = new pg.Client({ connectionString: databaseUrl });
  await db.connect();
  try {
    const ask = async <T>(text: string): Promise<T[]> => (await db.query(text, [jobId])).rows as T[];
    const [job] = await ask<{ state: string; reason: string | null }>(
      "select state, reason from jobs where id = $1",
    );
    const [attempts] = await ask<{ count: string }>(
      "select count(*) from attempts a join runs r on r.id = a.run_id where r.job_id = $1",
    );
    return {
      state: job?.state ?? "gone",
      reason: job?.reason ?? null,
      trials: await ask("select state, measured is not null as measured from trials where job_id = $1"),
      steps: await ask(
        "select m.step, m.loss from step_metrics m join runs r on r.id = m.run_id where r.job_id = $1 order by m.step",
      ),
      attempts: Number(attempts?.count ?? 0),
    };
  } finally {
    await db.end();
  }
}

/** The promises that a job has to keep whatever died. */
export function brokenPromises(
  stored: Stored,
  expected: { readonly trials: number; readonly steps: number; readonly losses: readonly number[] },
): string[] {
  const broken: string[] = [];
  if (stored.state !== "succeeded") broken.push(`it ended as ${stored.state}: ${stored.reason ?? ""}`);
  const { length: trials } = stored.trials;
  if (trials !== expected.trials) broken.push(`it has ${trials} trials and not ${expected.trials}`);
  const unmeasured = stored.trials.filter(({ measured }) => !measured).length;
  if (unmeasured > 0) broken.push(`${unmeasured} of its trials were not measured`);
  const steps = stored.steps.map(({ step }) => step);
  if (steps.some((step, index) => step !== index + 1) || steps.length !== expected.steps)
    broken.push(`its ${steps.length} steps are not each of 1 to ${expected.steps} once`);
  const other = stored.steps.find(({ loss }, index) => loss !== expected.losses[index]);
  if (other !== undefined)
    broken.push(`the loss of step ${other.step} is not that of a run that nothing disturbed`);
  return broken;
}
