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

/** Numbers of one run, always the same for its seed and number. */
class Draw {
  readonly #generator: ReturnType<typeof xoroshiro128plus>;

  constructor(seed: number, number: number) {
    this.#generator = xoroshiro128plus(Math.imul(seed, 0x9e3779b1) ^ Math.imul(number + 1, 0x85ebca6b));
    for (let round = 0; round < 8; round += 1) this.#generator.next(); // neighbouring seeds begin alike
  }

  integer(from: number, to: number): number {
    return uniformInt(this.#generator, from, to);
  }

  fraction(): number {
    return uniformFloat64(this.#generator);
  }

  among<T>(list: readonly T[]): T {
    return list[this.integer(0, list.length - 1)] as T;
  }

  /** A moment of a run that writes so many checkpoints, and removes so many. */
  moment(written: number, removed: number): Moment {
    const at = this.among([
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
    if (at === "launch" || at === "training") return { at, fraction: this.fraction() };
    const most = at === "removing" ? removed : written;
    if (most < 1) return { at: "training", fraction: this.fraction() };
    return {
      at,
      occurrence: this.integer(1, most),
      milliseconds: at === "writing" ? this.fraction() * 8 : this.fraction() * 2,
    };
  }

  fullness(ranks: number): Fullness {
    switch (this.among(["small", "small", "filled", "filled", "inodes", "limit"] as const)) {
      case "small":
        return { how: "small", checkpoints: 0.1 + this.fraction() * 3.5 };
      case "filled":
        return {
          how: "filled",
          fraction: this.fraction(),
          leftBytes: this.among([0, 0, 4096, this.integer(0, 1 << 20)]),
        };
      case "inodes":
        return { how: "inodes", files: this.integer(2, 14) };
      case "limit":
        return { how: "limit", rank: this.integer(0, ranks - 1), shards: this.fraction() };
    }
  }

  damage(kind: Kind, ranks: number): Damage | null {
    if (kind !== "truncated" && kind !== "flipped") return null;
    return {
      how: kind === "truncated" && this.fraction() >= 0.8 ? "removed" : kind,
      age: this.fraction() < 0.85 ? 0 : 1,
      file: this.fraction() < 0.35 ? "manifest" : this.integer(0, ranks - 1),
      place: this.fraction(),
      bit: this.integer(0, 7),
    };
  }
}

/** Run `number` of a seed: always the same. */
export function scenarioOf(seed: number, number: number, kinds: readonly Kind[] = KINDS): Scenario {
  const draw = new Draw(seed, number);
  const allowed = SHARES.filter((kind) => kinds.includes(kind));
  // Shares hold exactly over every twenty runs.
  const kind = allowed[number % allowed.length] as Kind;
  const setting = draw.among(SETTINGS);
  const plans = plansOf(setting);
  const plan = draw.among(plans.filter((name) => name !== "one"));
  const ranks = ranksOf(PLANS[plan] as (typeof PLANS)[string]);
  // What is rounded to bfloat16 does not agree to 1e-6 between plans.
  const restartPlan = setting.precision === "fp32" && draw.fraction() < 0.35 ? draw.among(plans) : plan;
  const everySteps = draw.integer(1, 4);
  const checkpoints = Math.floor(STEPS / everySteps);
  const keepLast = draw.integer(1, 3);
  const kill = (): Kill => ({
    moment: draw.moment(checkpoints, checkpoints - keepLast),
    rank: draw.integer(0, ranks - 1),
  });
  return {
    number,
    kind,
    setting,
    plan,
    restartPlan,
    everySteps,
    keepLast,
    writing: draw.fraction() < 0.75 ? "asynchronous" : "synchronous",
    onFailure: draw.fraction() < 0.6 ? "continue" : "stop",
    kills: kind === "killed" ? Array.from({ length: draw.integer(1, 3) }, kill) : [],
    fullness: kind === "full" ? draw.fullness(ranks) : null,
    damage: draw.damage(kind, ranks),
    damagedAtStep: everySteps * draw.integer(1, Math.max(1, Math.floor((STEPS - 1) / everySteps))),
  };
}
