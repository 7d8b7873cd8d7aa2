import { uniformFloat64 } from "pure-rand/distribution/uniformFloat64";
import { uniformInt } from "pure-rand/distribution/uniformInt";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";
import { PLANS, plansOf, ranksOf, SETTINGS, STEPS, type Setting } from "./settings.ts";

export const KINDS = ["killed", "full", "truncated", "flipped"] as const;
export type Kind = (typeof KINDS)[number];

/**
 * At that fraction of the undisturbed launch's time, or of the steps that are left, in the middle of a step.
 */
export interface TimedMoment {
  readonly at: "launch" | "training";
  readonly fraction: number;
}
/** So long after the n-th directory of that kind has appeared among the checkpoints. */
export interface FileMoment {
  readonly at: "writing" | "publishing" | "removing";
  readonly occurrence: number;
  readonly milliseconds: number;
}
/** When a rank is killed. */
export type Moment = TimedMoment | FileMoment;

export interface Kill {
  readonly moment: Moment;
  readonly rank: number;
}

/**
 * How a disk is full: as small as so many checkpoints, filled at a fraction of the steps, out of inodes, or
 * files limited to a part of a shard.
 */
export type Fullness =
  | { readonly how: "small"; readonly checkpoints: number }
  | { readonly how: "filled"; readonly fraction: number; readonly leftBytes: number }
  | { readonly how: "inodes"; readonly files: number }
  | { readonly how: "limit"; readonly rank: number; readonly shards: number };

/** What happens to a file of a checkpoint. Places are fractions of its size. */
export interface Damage {
  readonly how: "truncated" | "removed" | "flipped";
  /** 0: the newest checkpoint, 1: the one before. */
  readonly age: 0 | 1;
  /** The manifest, or the n-th shard (modulo how many there are). */
  readonly file: "manifest" | number;
  readonly place: number;
  readonly bit: number;
}

export interface Scenario {
  readonly number: number;
  readonly kind: Kind;
  readonly setting: Setting;
  readonly plan: string;
  /** The plan of the restart: the same in most runs. */
  readonly restartPlan: string;
  readonly everySteps: number;
  readonly keepLast: number;
  readonly writing: "asynchronous" | "synchronous";
  readonly onFailure: "continue" | "stop";
  readonly kills: readonly Kill[];
  readonly fullness: Fullness | null;
  readonly damage: Damage | null;
  /** Steps done when a file is damaged. */
  readonly damagedAtStep: number;
}

/** Of twenty runs so many are of each kind. */
const SHARES: readonly Kind[] = [
  ...Array<Kind>(9).fill("killed"),
  ...Array<Kind>(4).fill("full"),
  ...Array<Kind>(3).fill("truncated"),
  ...Array<Kind>(4).fill("flipped"),
];

/** Run `number` of a seed: always the same. */
export function scenarioOf(seed: number, number: number, kinds: readonly Kind[] = KINDS): Scenario {
  const generator = xoroshiro128plus(Math.imul(seed, 0x9e3779b1) ^ Math.imul(number + 1, 0x85ebca6b));
  for (let round = 0; round < 8; round += 1) generator.next(); // neighbouring seeds begin alike
  const integer = (from: number, to: number): number => uniformInt(generator, from, to);
  const fraction = (): number => uniformFloat64(generator);
  const among = <T>(list: readonly T[]): T => list[integer(0, list.length - 1)] as T;

  const allowed = SHARES.filter((kind) => kinds.includes(kind));
  // Shares hold exactly over every twenty runs.
  const kind = allowed[number % allowed.length] as Kind;
  const setting = among(SETTINGS);
  const plans = plansOf(setting);
  const plan = among(plans.filter((name) => name !== "one"));
  const ranks = ranksOf(PLANS[plan] as (typeof PLANS)[string]);
  // What is rounded to bfloat16 does not agree to 1e-6 between plans.
  const restartPlan = setting.precision === "fp32" && fraction() < 0.35 ? among(plans) : plan;
  const everySteps = integer(1, 4);
  const checkpoints = Math.floor(STEPS / everySteps);

  const keepLast = integer(1, 3);

  const moment = (): Moment => {
    const at = among([
      "launch",
      "training",
      "training",
      "training",
      "writing",
      "writing",
      "writing",
      "publishing",
      "removing",
    ] as const);
    if (at === "launch" || at === "training") return { at, fraction: fraction() };
    const most = at === "removing" ? checkpoints - keepLast : checkpoints;
    return most < 1
      ? { at: "training", fraction: fraction() }
      : {
          at,
          occurrence: integer(1, most),
          milliseconds: at === "writing" ? fraction() * 8 : fraction() * 2,
        };
  };
  const kill = (): Kill => ({ moment: moment(), rank: integer(0, ranks - 1) });
  const fullness = (): Fullness => {
    switch (among(["small", "small", "filled", "filled", "inodes", "limit"] as const)) {
      case "small":
        return { how: "small", checkpoints: 0.1 + fraction() * 3.5 };
      case "filled":
        return { how: "filled", fraction: fraction(), leftBytes: among([0, 0, 4096, integer(0, 1 << 20)]) };
      case "inodes":
        return { how: "inodes", files: integer(2, 14) };
      case "limit":
        return { how: "limit", rank: integer(0, ranks - 1), shards: fraction() };
    }
  };
  const damage = (how: Damage["how"]): Damage => ({
    how,
    age: fraction() < 0.85 ? 0 : 1,
    file: fraction() < 0.35 ? "manifest" : integer(0, ranks - 1),
    place: fraction(),
    bit: integer(0, 7),
  });

  return {
    number,
    kind,
    setting,
    plan,
    restartPlan,
    everySteps,
    keepLast,
    writing: fraction() < 0.75 ? "asynchronous" : "synchronous",
    onFailure: fraction() < 0.6 ? "continue" : "stop",
    kills: kind === "killed" ? Array.from({ length: integer(1, 3) }, kill) : [],
    fullness: kind === "full" ? fullness() : null,
    damage:
      kind === "truncated"
        ? damage(fraction() < 0.8 ? "truncated" : "removed")
        : kind === "flipped"
          ? damage("flipped")
          : null,
    damagedAtStep: everySteps * integer(1, Math.max(1, Math.floor((STEPS - 1) / everySteps))),
  };
}
