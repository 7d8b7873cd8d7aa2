import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@internevo/test-kit";
import { createWorld, type World } from "@internevo/test-kit/world";
import { afterAll, beforeAll, expect, it } from "vitest";
import { storedRun } from "@internevo/test-kit/stored-run";
import { runPython } from "./servers.ts";

let world: World;
let directory: string;
beforeAll(async () => {
  world = await createWorld();
  directory = mkdtempSync(join(tmpdir(), "internevo-tensorboard-"));
});
afterAll(async () => {
  await world.close();
  rmSync(directory, { recursive: true, force: true });
});

/** Reads a folder as TensorBoard does, and prints what it has. */
const READER = `
import json, sys
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
multiplexer = EventMultiplexer(tensor_size_guidance={"tensors": 0})
multiplexer.AddRunsFromDirectory(sys.argv[1])
multiplexer.Reload()
from tensorboard.util import tensor_util
def values(run, tag):
    return [[event.step, float(tensor_util.make_ndarray(event.tensor_proto).item())] for event in multiplexer.Tensors(run, tag)]
def plugin(run, tag):
    return multiplexer.SummaryMetadata(run, tag).plugin_data.plugin_name
print(json.dumps({run: {tag: values(run, tag) for tag in found["tensors"] if plugin(run, tag) == "scalars"}
  for run, found in multiplexer.Runs().items()}))
`;
type Read = Readonly<Record<string, Readonly<Record<string, readonly (readonly [number, number])[]>>>>;
const read = (): Read =>
  JSON.parse(runPython(["-c", READER, directory]).trim().split("\n").at(-1) ?? "") as Read;
const range = (first: number, last: number): number[] =>
  Array.from({ length: last - first + 1 }, (_, index) => first + index);

it("is read by TensorBoard: each step once, also after kill -9 and restarts of the ranks", async () => {
  const settings = { INTERNEVO_REPLANNER_TENSORBOARD_DIRECTORY: directory };
  let service = await world.startProcess("replanner", settings);
  const run = await storedRun(world.database, "read");
  for (let kill = 0; kill < 3; kill += 1) {
    await run.step(100 * kill + 1, 100 * kill + 100);
    await service.kill();
    await world.database.db.execute("update tracker_cursors set claimed_until = null, next_at = now()");
    service = await world.startProcess("replanner", settings);
  }
  await run.validate(300);
  await run.restart(250);
  await run.step(251, 320);
  await run.end("succeeded");
  await eventually(
    "the end",
    async () => {
      const { rows } = await world.database.db.execute(
        `select 1 from tracker_cursors where job_id = '${run.jobId}' and ended_at is not null`,
      );
      return rows.length > 0;
    },
    60,
    world.logs,
  );
  const runs = read();
  expect(Object.keys(runs)).toEqual([`default/read-${run.jobId.slice(0, 8)}`]);
  const [tags = {}] = Object.values(runs);
  expect(tags["train/loss"]?.map(([step]) => step)).toEqual(range(1, 320));
  for (const [step, loss] of tags["train/loss"] ?? []) expect(loss).toBe(Math.fround(5 + 1 / step));
  expect(tags["run/attempt"]?.map(([, attempt]) => attempt)).toEqual(
    range(1, 320).map((step) => (step > 250 ? 2 : 1)),
  );
  const inspected = runPython(["-m", "tensorboard.main", "--inspect", "--logdir", directory]);
  expect(inspected).toContain("train/loss");
  console.log(inspected);
}, 600_000);
