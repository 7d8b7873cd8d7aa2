import type { WorkloadChange } from "@internevo/client";
import {
  DailyWindowSchema,
  LEAST_KEPT_GAIN,
  ProblemError,
  REPLAN_POLICIES,
  type DailyWindow,
  type ReplanPolicy,
} from "@internevo/domain";
import { Option, type Command } from "commander";
import { Check } from "typebox/value";
import { integerArgument, shareArgument } from "../arguments.ts";

export const WORKLOAD_ARGUMENT = "id of the workload, the beginning of it, or its name";

/** What `replan add` and `replan edit` both take. */
export interface SettingOptions {
  readonly timeZone?: string;
  readonly gainThreshold?: number;
  readonly catchUpWindow?: number;
  readonly policy?: ReplanPolicy;
  readonly window?: DailyWindow | typeof ALWAYS;
  readonly compareSteps?: number;
  readonly notInLastSteps?: number;
  readonly measureRuns?: boolean;
}

/** No window. Null would be lost: commander takes it for an empty text. */
const ALWAYS = "always";

/** @throws ProblemError for what is no window */
function windowArgument(text: string): DailyWindow | typeof ALWAYS {
  if (text === ALWAYS) return ALWAYS;
  const [from = "", to = "", more] = text.split("-");
  if (more === undefined && Check(DailyWindowSchema, { from, to })) return { from, to };
  throw new ProblemError("bad-request", `--window ${text} is no window`, [
    {
      field: "--window",
      value: text,
      message: "is not two times of day",
      remedy: "write it as 22:00-06:00, or always",
    },
  ]);
}

export function addSettings(command: Command): Command {
  return command
    .option("--time-zone <zone>", "IANA name; default of a new one: this machine's")
    .option(
      "--gain-threshold <share>",
      "gain in step time that makes a proposal, by prediction, and keeps a plan, as measured, e.g. 5%; " +
        `with --policy apply no run keeps less than ${LEAST_KEPT_GAIN}`,
      shareArgument(0, 1),
    )
    .option(
      "--catch-up-window <seconds>",
      "how late a missed run may still be made up",
      integerArgument(0, 31_536_000),
    )
    .addOption(
      new Option(
        "--policy <policy>",
        "what becomes of a better plan: notify (it waits for an answer), try (a run tries it first), apply (a run goes on under it)",
      ).choices(REPLAN_POLICIES),
    )
    .option(
      "--window <times>",
      "when runs may be stopped for it, for example 22:00-06:00, or always; the same time twice is the whole day",
      windowArgument,
    )
    .option("--compare-steps <steps>", "steps that are compared", integerArgument(1, 1000))
    .option(
      "--not-in-last-steps <steps>",
      "nothing is changed when fewer steps are left",
      integerArgument(0, 1_000_000_000),
    )
    .option("--measure-runs", "a run may be stopped at a checkpoint to measure its cluster")
    .option("--no-measure-runs", "no run is stopped to measure");
}

/** The options that were given, as the API names them. */
export function settingsOf(options: SettingOptions): WorkloadChange {
  const all = {
    timeZone: options.timeZone,
    gainThreshold: options.gainThreshold,
    catchUpWindowSeconds: options.catchUpWindow,
    policy: options.policy,
    changeWindow: options.window === ALWAYS ? null : options.window,
    compareSteps: options.compareSteps,
    notInLastSteps: options.notInLastSteps,
    mayMeasureRuns: options.measureRuns,
  };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
}
