import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Cluster, Failure } from "@internevo/domain";
import { plannedRuntimeBytes, runtimeRun } from "@internevo/profiles";
import { encodeHeader } from "@internevo/data";
import { launchRanks, type LaunchOptions, type Trainer } from "@internevo/launcher";

const SECONDS = 300;

export type RuntimeOutcome =
  | { readonly status: "measured"; readonly bytes: number }
  | { readonly status: "stopped" }
  | { readonly status: "failed"; readonly failure: Failure };

/**
 * What a rank of the trainer takes beside its arena (program, libraries, communicators, lanes), as the
 * trainer says it of a step of a tiny model: the probe is another program, and differs. It hardly depends on
 * the plan; one with all kinds of threads and groups is taken. It is as plans count it: enough for other starts.
 */
export async function measureRuntime(
  options: { readonly trainer: Trainer; readonly cluster: Pick<Cluster, "device"> } & Omit<
    LaunchOptions<Trainer>,
    "program" | "config" | "onEvent"
  >,
): Promise<RuntimeOutcome> {
  const { trainer, cluster, ranks, runDirectory, threadsPerRank } = options;
  await mkdir(runDirectory, { recursive: true });
  const path = join(runDirectory, "runtime.tokens");
  const { config, tokens } = runtimeRun({ ranks, threadsPerRank, cluster, dataPath: path });
  await writeFile(
    path,
    Buffer.concat([
      encodeHeader({ bytesPerToken: 2, tokenCount: tokens.count, vocabularySize: tokens.vocabularySize }),
      Buffer.alloc(2 * tokens.count),
    ]),
  );
  let bytes: number | undefined;
  const outcome = await launchRanks({
    ...options,
    program: trainer,
    config,
    timeoutSeconds: SECONDS,
    onEvent: (event) => {
      if (event.event === "started") bytes = event.memory["runtime"];
    },
  });
  if (outcome.status === "stopped") return { status: "stopped" };
  if (outcome.status === "failed") return { status: "failed", failure: outcome.failure };
  return bytes === undefined
    ? {
        status: "failed",
        failure: { code: "internal", message: "the trainer did not say what it takes beside its arena" },
      }
    : { status: "measured", bytes: plannedRuntimeBytes(bytes, cluster) };
}
