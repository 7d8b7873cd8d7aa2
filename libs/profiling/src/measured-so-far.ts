import { appendFileSync, mkdirSync } from "node:fs";
import { readFile, rename, rm, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { ProbeEventSchema, type ProbeEvent } from "@internevo/contracts";
import { missingMeasurements, sliceKey, type Measurements } from "@internevo/cost-model";
import {
  PlacementSchema,
  SliceTimeSchema,
  validate,
  type Placement,
  type SliceRequest,
} from "@internevo/domain";
import { collectiveCurves, overlapsOf, type MeasuringEffort, type SliceOfRounds } from "@internevo/profiles";
import { Type, type Static } from "typebox";

const strict = { additionalProperties: false } as const;

/** What decides whether points that an earlier attempt measured say something of what is measured now. */
const HeadSchema = Type.Object(
  {
    kind: Type.Literal("measurement"),
    cluster: Type.String(),
    programs: Type.Array(Type.String()),
    threadsPerRank: Type.Integer(),
    effort: Type.Array(Type.Number()),
    /** When the first of its points was measured. */
    at: Type.String(),
  },
  strict,
);
type Head = Static<typeof HeadSchema>;

const RecordSchema = Type.Union([
  /** Further ranks were started. */
  Type.Object({ kind: Type.Literal("attempt") }, strict),
  Type.Object({ kind: Type.Literal("runtime"), bytes: Type.Number(), seconds: Type.Number() }, strict),
  Type.Object(
    {
      kind: Type.Literal("probe"),
      event: ProbeEventSchema,
      placement: Type.Optional(PlacementSchema),
      seconds: Type.Number({ description: "since the attempt began" }),
    },
    strict,
  ),
  Type.Object(
    {
      kind: Type.Literal("slice"),
      slice: Type.Object({ ...SliceTimeSchema.properties, disturbances: Type.Array(Type.String()) }, strict),
      seconds: Type.Number(),
    },
    strict,
  ),
  Type.Object(
    {
      kind: Type.Literal("no-room"),
      shape: SliceTimeSchema.properties.shape,
      layers: SliceTimeSchema.properties.layers,
      seconds: Type.Number(),
    },
    strict,
  ),
]);
type Kept = Static<typeof RecordSchema>;
type Measured = Exclude<Kept, { kind: "attempt" }>;

export interface KeepingOptions {
  /** The file; undefined: what is measured is kept in memory, and not for another attempt. */
  readonly path: string | undefined;
  readonly cluster: string;
  /** Digests of the programs that measure. */
  readonly programs: readonly string[];
  readonly threadsPerRank: number;
  readonly effort: MeasuringEffort;
  /** What was measured longer ago is not kept. */
  readonly freshForSeconds: number;
  /** Told when points cannot be written down. */
  readonly onFailure: (error: unknown) => void;
}

function parsed(text: string): { readonly head: Head; readonly records: Kept[] } | undefined {
  const [first, ...lines] = text.split("\n");
  const read = <T>(line: string | undefined, schema: Parameters<typeof validate>[0]): T | undefined => {
    try {
      return validate(schema, JSON.parse(line ?? ""), "profile-invalid", "what was measured so far") as T;
    } catch {
      return undefined;
    }
  };
  const head = read<Head>(first, HeadSchema);
  if (!head) return undefined;
  const records: Kept[] = [];
  for (const line of lines) {
    // The last line of a process that was killed may be half of one.
    const record = read<Kept>(line, RecordSchema);
    if (!record) break;
    records.push(record);
  }
  return { head, records };
}

async function contentOf(path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return "";
    throw error;
  }
}

/**
 * What a measurement has measured so far, a line a point, so that an attempt after lost ranks measures only
 * what is missing.
 */
export class MeasuredSoFar {
  readonly #options: KeepingOptions;
  readonly #head: Head;
  readonly #records: Kept[];
  readonly #begin = performance.now();
  #keeps: boolean;

  private constructor(options: KeepingOptions, head: Head, records: Kept[]) {
    this.#options = options;
    this.#head = head;
    this.#records = records;
    this.#keeps = options.path !== undefined;
  }

  /**
   * Begins an attempt with what those before it have left: of the same cluster, programs and effort, and still
   * fresh.
   */
  static async open(options: KeepingOptions): Promise<MeasuredSoFar> {
    const { path, cluster, programs, threadsPerRank, effort, freshForSeconds } = options;
    const own: Head = {
      kind: "measurement",
      cluster,
      programs: [...programs],
      threadsPerRank,
      effort: Object.values(effort) as number[],
      at: new Date().toISOString(),
    };
    if (path === undefined) return new MeasuredSoFar(options, own, []);
    const found = parsed(await contentOf(path));
    const isSame =
      found !== undefined &&
      JSON.stringify({ ...found.head, at: "" }) === JSON.stringify({ ...own, at: "" }) &&
      Date.now() - Date.parse(found.head.at) < freshForSeconds * 1000;
    const head = isSame ? found.head : own;
    const records: Kept[] = [...(isSame ? found.records : []), { kind: "attempt" }];
    mkdirSync(dirname(path), { recursive: true });
    await writeFile(`${path}.tmp`, [head, ...records].map((one) => `${JSON.stringify(one)}\n`).join(""));
    await rename(`${path}.tmp`, path);
    return new MeasuredSoFar(options, head, records);
  }

  /** When the first point was measured. */
  get measuredAt(): Date {
    return new Date(this.#head.at);
  }

  /** How much is known; it grows with every point. */
  get count(): number {
    return this.#measured().length;
  }

  /** Seconds that all attempts took for what they measured, and this one so far. */
  get seconds(): number {
    let before = 0;
    let ofAttempt = 0;
    for (const record of this.#records) {
      if (record.kind === "attempt") [before, ofAttempt] = [before + ofAttempt, 0];
      else ofAttempt = record.seconds;
    }
    return before + (performance.now() - this.#begin) / 1000;
  }

  get runtimeBytes(): number | undefined {
    return this.#measured().find((record) => record.kind === "runtime")?.bytes;
  }

  /** What the probe said, of all attempts. */
  get events(): ProbeEvent[] {
    return this.#measured().flatMap((record) => (record.kind === "probe" ? [record.event] : []));
  }

  /** Where the ranks of the overlaps among the events were, in their order. */
  get overlapPlacements(): Placement[] {
    return this.#measured().flatMap((record) =>
      record.kind === "probe" && record.event.event === "overlap" && record.placement !== undefined
        ? [record.placement]
        : [],
    );
  }

  /** The rounds of a slice. */
  roundsOf(slice: SliceRequest): SliceOfRounds[] {
    const key = sliceKey(slice);
    return this.#measured().flatMap((record) =>
      record.kind === "slice" && sliceKey(record.slice) === key ? [record.slice] : [],
    );
  }

  hasNoRoom(slice: SliceRequest): boolean {
    const key = sliceKey(slice);
    return this.#measured().some((record) => record.kind === "no-room" && sliceKey(record) === key);
  }

  /** What is still to be measured; slices of which rounds are missing among it. */
  missing(needed: Measurements): Measurements {
    const { events } = this;
    const whole = needed.slices.filter(
      (slice) => this.hasNoRoom(slice) || this.roundsOf(slice).length >= this.#options.effort.sliceRounds,
    );
    const missing = missingMeasurements(
      {
        modules: events.flatMap((event) => (event.event === "module" ? [event] : [])),
        collectives: collectiveCurves(
          events.flatMap((event) => (event.event === "collective" ? [event] : [])),
        ),
        overlaps: overlapsOf(events, this.overlapPlacements),
        slices: whole.flatMap((slice) => this.roundsOf(slice).slice(0, 1)),
      },
      needed,
    );
    return { ...missing, slices: missing.slices.filter((slice) => !this.hasNoRoom(slice)) };
  }

  keepRuntime(bytes: number): void {
    this.#keep({ kind: "runtime", bytes, seconds: this.#seconds() });
  }

  /** @param placement of an overlap's ranks. */
  keepEvent(event: ProbeEvent, placement: Placement | undefined): void {
    if (event.event === "error" || event.event === "done") return;
    this.#keep({
      kind: "probe",
      event,
      ...(placement === undefined ? {} : { placement }),
      seconds: this.#seconds(),
    });
  }

  keepRound(slice: SliceOfRounds): void {
    this.#keep({
      kind: "slice",
      slice: { ...slice, disturbances: [...slice.disturbances] },
      seconds: this.#seconds(),
    });
  }

  keepNoRoom({ shape, layers }: SliceRequest): void {
    this.#keep({ kind: "no-room", shape, layers, seconds: this.#seconds() });
  }

  /** The measurement is complete: another one of the same cluster measures everything. */
  async forget(): Promise<void> {
    this.#keeps = false;
    if (this.#options.path !== undefined) await rm(this.#options.path, { force: true });
  }

  #measured(): Measured[] {
    return this.#records.filter((record): record is Measured => record.kind !== "attempt");
  }

  #seconds(): number {
    return (performance.now() - this.#begin) / 1000;
  }

  #keep(record: Measured): void {
    this.#records.push(record);
    if (!this.#keeps || this.#options.path === undefined) return;
    try {
      // At once: whoever kills the ranks may kill this process too.
      appendFileSync(this.#options.path, `${JSON.stringify(record)}\n`);
    } catch (error) {
      this.#keeps = false;
      this.#options.onFailure(error);
    }
  }
}
