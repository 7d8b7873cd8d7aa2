// Cancels a job in each stage and checks that its state says so, and that no rank is left. usage: npm run
// chaos -- cancel prints JSON
import { isAtRest } from "@internevo/domain";
import { chaosJob, insist, rankPids, STAGES, until, withStack } from "./src/harness.ts";

const results = await withStack(async ({ stack, client, dataDirectory }) => {
  const list = [];
  for (const stage of STAGES) {
    const planner = stack.pidOf("planner");
    if (planner === undefined) throw new Error("the planner does not run");
    // Planning is over in no time: held still, it can be cancelled.
    if (stage === "planning") process.kill(planner, "SIGSTOP");
    const { id } = await client.submitJob(await chaosJob(`cancel-${stage}`));
    await until(
      `${stage} begins`,
      async () => {
        const { state } = await insist(() => client.getJob(id));
        if (isAtRest(state)) throw new Error(`the job ended as ${state} before ${stage}`);
        return state === stage;
      },
      180,
    );
    if (stage !== "planning") await until("ranks run", () => rankPids(dataDirectory).length > 0, 60);
    const begin = performance.now();
    await client.cancelJob(id);
    if (stage === "planning") process.kill(planner, "SIGCONT");
    await until(
      "the job is cancelled",
      async () => isAtRest((await insist(() => client.getJob(id))).state),
      60,
    );
    const { state } = await insist(() => client.getJob(id));
    const ranksLeft = rankPids(dataDirectory).length;
    console.error(
      `${stage}: ${state}, ${ranksLeft} ranks left, after ${((performance.now() - begin) / 1000).toFixed(1)} s`,
    );
    list.push({ stage, state, ranksLeft, seconds: (performance.now() - begin) / 1000 });
  }
  return list;
});
console.log(JSON.stringify({ chaos: "cancel", results }, null, 2));
process.exitCode = results.every(({ state, ranksLeft }) => state === "cancelled" && ranksLeft === 0) ? 0 : 1;
