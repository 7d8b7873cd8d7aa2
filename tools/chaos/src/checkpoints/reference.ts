import { mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { prepareDataset } from "@internevo/data";
import { attempt, type StepEvent } from "./attempt.ts";
import { bytesOf, digestsOf } from "./disk.ts";
import { SEQUENCE_LENGTH_TOKENS, STEPS, type Setting } from "./settings.ts";

/** An undisturbed run, and every checkpoint of it. */
export interface Reference {
  readonly steps: readonly StepEvent[];
  /** Holds step-1 to step-<STEPS>. */
  readonly checkpoints: string;
  readonly finalDigests: Readonly<Record<string, string>>;
  /** Of one checkpoint, and of its largest shard. */
  readonly checkpointBytes: number;
  readonly shardBytes: number;
  readonly trainingSeconds: number;
  readonly launchSeconds: number;
}

/** The undisturbed runs, each made when it is first asked for. */
export class References {
  readonly #directory: string;
  readonly #known = new Map<string, Promise<Reference>>();
  #dataPath: Promise<string> | undefined;

  constructor(directory: string) {
    this.#directory = directory;
  }

  /** The text of this repository's licence. */
  dataPath(): Promise<string> {
    return (this.#dataPath ??= prepareDataset(
      { format: "text", paths: [resolve(import.meta.dirname, "../../../../LICENSE")] },
      this.#directory,
      { vocabularySize: 256, sequenceLengthTokens: SEQUENCE_LENGTH_TOKENS },
    ).then(({ path }) => path));
  }

  of(setting: Setting, plan: string): Promise<Reference> {
    const key = `${setting.name} ${plan}`.replaceAll(" ", "-");
    const known = this.#known.get(key);
    if (known) return known;
    const made = this.#make(setting, plan, join(this.#directory, key));
    this.#known.set(key, made);
    return made;
  }

  async #make(setting: Setting, plan: string, directory: string): Promise<Reference> {
    rmSync(directory, { recursive: true, force: true });
    const checkpoints = join(directory, "checkpoints");
    mkdirSync(checkpoints, { recursive: true });
    const { outcome, steps, saved, trainingSeconds, launchSeconds } = await attempt({
      setting,
      plan,
      dataPath: await this.dataPath(),
      runDirectory: join(directory, "run"),
      checkpoint: {
        directory: checkpoints,
        everySteps: 1,
        keepLast: STEPS,
        resume: "none",
        writing: "asynchronous",
      },
    });
    if (outcome.status !== "completed" || steps.length !== STEPS || saved.length !== STEPS)
      throw new Error(`the undisturbed run of ${setting.name}, ${plan}, failed: ${JSON.stringify(outcome)}`);
    const last = join(checkpoints, `step-${STEPS}`);
    const shards = readdirSync(last)
      .filter((name) => name.endsWith(".safetensors"))
      .map((name) => readFileSync(join(last, name)).length);
    return {
      steps,
      checkpoints,
      finalDigests: digestsOf(last),
      checkpointBytes: bytesOf(last),
      shardBytes: Math.max(...shards),
      trainingSeconds,
      launchSeconds,
    };
  }
}
