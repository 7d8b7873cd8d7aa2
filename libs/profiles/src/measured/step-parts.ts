import {
  DECODER_PROGRAM,
  isBeside,
  operatorLabels,
  unitProducts,
  type LaneEvent,
  type LaneStep,
  type Pass,
} from "@internevo/domain";

const PASSES = ["forward", "backward"] as const;
/** The operators of a layer that timelines name. */
const OPERATORS = operatorLabels(DECODER_PROGRAM, "forward");
const PRODUCTS = new Set(unitProducts(DECODER_PROGRAM).map(({ name }) => name));

/** The segment of such an operator: "forward qkv". */
export const passSegment = <P extends Pass>(pass: P, name: string): `${P} ${string}` => `${pass} ${name}`;

const segmentsOf = (pass: Pass): Record<string, Segment> =>
  Object.fromEntries(
    operatorLabels(DECODER_PROGRAM, pass).map(({ name, label }) => [label, passSegment(pass, name)]),
  );
const firstLabel = (pass: Pass): string[] =>
  operatorLabels(DECODER_PROGRAM, pass)
    .slice(0, 1)
    .map(({ label }) => label);

/**
 * Kinds of segments that a step's time is divided into; `gather` and the last four are of sharding and of a
 * pipeline.
 */
export const SEGMENTS = [
  ...OPERATORS.map(({ name }) => passSegment("forward", name)),
  "forward communication",
  ...OPERATORS.map(({ name }) => passSegment("backward", name)),
  "backward communication",
  "embedding",
  "embedding communication",
  "head",
  "head communication",
  "parameters and gradients",
  "pipeline",
  "begin of the step",
  "reduction at the end",
  "update",
] as const;
export type Segment = (typeof SEGMENTS)[number];

/** Seconds of each kind in a step; together they are the step. */
export type StepParts = Readonly<Record<Segment, number>>;

const COMPUTE: Readonly<Record<string, Segment>> = {
  "embedding forward": "embedding",
  "embedding backward": "embedding",
  "head and loss": "head",
  ...segmentsOf("forward"),
  ...segmentsOf("backward"),
  "gradient norm": "update",
  optimizer: "update",
};

/** Collectives of sequence and tensor parallelism: they belong to the pass around them. */
const OF_PASS = new Set([
  "all-to-all of heads and sequence",
  "ring exchange",
  "all-gather activations",
  "reduce-scatter activations",
  "wait for all-gather of activations",
  "wait for reduce-scatter of activations",
  "all-gather loss statistics",
]);
const PIPELINE = new Set(["wait for the stage before or after", "wait until a message is taken"]);
const LAST_BACKWARD = "embedding backward";
const NORM = "all-reduce loss and gradient norm";

/**
 * What a collective of a pass counts as: by the computation that it interrupts, or else that is before and
 * after it.
 */
function communicationOf(name: string, around: Segment): Segment {
  if (around === "embedding") return "embedding communication";
  if (around === "head") return "head communication";
  return around.startsWith("backward") || name === "backward"
    ? "backward communication"
    : "forward communication";
}

/**
 * A step of one rank by kinds of segments. Time between two events (norms, rotary positions, sums, copies,
 * reading data) counts as the computation that follows, or that is before when a collective follows: it is
 * what a layer's unit needs around its products. What comes after the last backward pass is reduction until
 * the gradients' norm, and then update.
 */
export function stepParts({ start, end, events }: LaneStep): StepParts {
  const parts = Object.fromEntries(SEGMENTS.map((segment) => [segment, 0])) as Record<Segment, number>;
  const add = (segment: Segment, seconds: number): void => {
    parts[segment] = (parts[segment] as number) + seconds;
  };
  const own = events.filter((event) => !isBeside(event));
  const lastBackward = own.findLastIndex(
    ({ name }) => name === LAST_BACKWARD || COMPUTE[name]?.startsWith("backward") === true,
  );
  const normAt = own.findIndex(({ name }, index) => index > lastBackward && name === NORM);
  let clock = start;
  let before: Segment = "begin of the step";
  let container: LaneEvent | undefined;
  // Up to where the events inside of the container are counted.
  let inner = start;
  own.forEach((event, index) => {
    const { name } = event;
    const computes = COMPUTE[name];
    if (container !== undefined && event.start >= container.end) container = undefined;
    // A collective may be recorded with a part of itself: what is counted is not counted again.
    const counted = container === undefined ? clock : inner;
    const length = Math.max(0, event.end - Math.max(event.start, counted));
    if (container !== undefined) inner = Math.max(inner, event.end);
    let segment: Segment;
    if (index > lastBackward) segment = normAt >= 0 && index <= normAt ? "reduction at the end" : "update";
    else if (computes !== undefined) segment = computes;
    else if (PIPELINE.has(name)) segment = "pipeline";
    else if (OF_PASS.has(name)) {
      const inside = container && COMPUTE[container.name];
      const next =
        name === "all-gather activations"
          ? own
              .slice(index + 1)
              .map((each) => COMPUTE[each.name])
              .find((each) => each !== undefined)
          : undefined;
      segment = communicationOf(name, inside ?? (next === "head" ? "head" : before));
      if (inside !== undefined) add(inside, -length); // the computation goes on behind it
    } else segment = "parameters and gradients";
    add(segment, length);
    const nested = container !== undefined;
    if (!nested) {
      const gap = Math.max(0, event.start - clock);
      const first = clock === start && before === "begin of the step";
      const part = index > lastBackward ? segment : (computes ?? before);
      add(first ? "begin of the step" : part, gap);
      clock = Math.max(clock, event.end);
    }
    if (computes !== undefined) {
      if (!nested) {
        container = event;
        inner = event.start;
      }
      before = computes;
    }
  });
  add("update", Math.max(0, end - clock));
  return parts;
}

const LAYER_BEGINS = new Set([
  "embedding forward",
  ...firstLabel("forward"),
  "head and loss",
  ...firstLabel("backward"),
  LAST_BACKWARD,
]);
const UNIT_BEGINS = new Set([
  ...LAYER_BEGINS,
  ...PASSES.flatMap((pass) => operatorLabels(DECODER_PROGRAM, pass))
    .filter(({ name }) => PRODUCTS.has(name))
    .map(({ label }) => label),
]);

/** Computation whose parameters are one unit, with what is around it. */
export interface ComputedUnit {
  readonly seconds: number;
  readonly beginsLayer: boolean;
}

/**
 * The passes of a step of one rank, unit by unit, whatever runs between them; together they are
 * `passesSeconds`.
 */
export function computedUnits({ events }: LaneStep): ComputedUnit[] {
  const units: { seconds: number; beginsLayer: boolean }[] = [];
  let clock: number | undefined;
  for (const { name, lane, start, end } of events) {
    const computes = isBeside({ lane }) ? undefined : COMPUTE[name];
    if (computes === undefined || computes === "update") continue;
    if (UNIT_BEGINS.has(name) || units.length === 0)
      units.push({ seconds: 0, beginsLayer: LAYER_BEGINS.has(name) });
    (units.at(-1) as (typeof units)[number]).seconds += end - (clock ?? start);
    clock = end;
  }
  return units;
}

/** Seconds from the first computation of a step to the end of its last backward pass, on this rank. */
export function passesSeconds({ events }: LaneStep): number {
  const own = events.filter((event) => !isBeside(event));
  const first = own.find(({ name }) => COMPUTE[name] !== undefined);
  const last = own.findLast(
    ({ name }) => name === LAST_BACKWARD || COMPUTE[name]?.startsWith("backward") === true,
  );
  return first && last ? last.end - first.start : 0;
}
