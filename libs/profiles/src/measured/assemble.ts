import type { ProbeEvent, TrainerEvent } from "@internevo/contracts";
import {
  DEFAULT_MOST_OTHERS_PERCENT,
  formatCounted,
  formatInteger,
  laneEventsOf,
  printable,
  ProblemError,
  ProfileSchema,
  validate,
  type MeasuredTrace,
  type Profile,
  type ProblemDetail,
} from "@internevo/domain";
import type { TSchema, Static } from "typebox";
import type { CaseLine, CheckResults } from "../check-results.ts";
import {
  KIT_VERSION,
  KitAnswerSchema,
  ProbeAnswerSchema,
  RuntimeAnswerSchema,
  SliceAnswerSchema,
  type KitAbout,
} from "./kit.ts";
import { assembleProfile, completedProfile, hostsOfProbe } from "./probe.ts";
import { DEFAULT_MOST_SPREAD_PERCENT, qualityOf } from "./quality.ts";
import { plannedRuntimeBytes } from "./runtime.ts";
import { measuredSlice, noRoomNote, ofRounds } from "./slices.ts";

/** Cases of the check that answer a piece of a kit's profile. */
export const KIT_CASES = "profile.";

const LIMITS = {
  mostSpreadPercent: DEFAULT_MOST_SPREAD_PERCENT,
  mostOthersPercent: DEFAULT_MOST_OTHERS_PERCENT,
};
const AGAIN =
  "run `gpu-check --only profile. --resume` on the node with the same kit and file, and assemble again";

/** A timeline that an answer names, beside the file of results that names it. */
export interface NamedTimeline {
  readonly file: string;
  readonly name: string;
}
const timelineKey = ({ file, name }: NamedTimeline): string => `${file}\n${name}`;

function refused(message: string, detail: ProblemDetail): ProblemError {
  return new ProblemError("profile-invalid", message, [detail]);
}

function answerOf<S extends TSchema>(schema: S, line: CaseLine): Static<S> {
  return validate(schema, line.result, "profile-invalid", `${line.case} in ${printable(line.file)}`);
}

/** The answers of one kit, and what it asked for. */
interface Answers {
  readonly about: KitAbout;
  readonly lines: ReadonlyMap<string, CaseLine>;
}

function answersOf(results: CheckResults): Answers {
  const lines = new Map<string, CaseLine>();
  let about: KitAbout | undefined;
  let first: CaseLine | undefined;
  for (const line of results.cases) {
    if (!line.case.startsWith(KIT_CASES) || Object.keys(line.result).length === 0) continue;
    const { kit, piece } = answerOf(KitAnswerSchema, line);
    if (about !== undefined && JSON.stringify(about) !== JSON.stringify(kit))
      throw refused("the files hold answers of two kits", {
        field: "files",
        value: line.file,
        message:
          `${line.case} answers a kit of ${kit.madeAt}, and ` +
          `${first?.case ?? ""} in ${first?.file ?? ""} one of ${about.madeAt}`,
        remedy: "give the files of one kit",
      });
    about ??= kit;
    first ??= line;
    lines.set(piece.id, line);
  }
  if (about === undefined)
    throw refused("the files hold no measurements of a kit", {
      field: "files",
      value: [...new Set(results.cases.map(({ file }) => file))].join(", "),
      message: `has no case that begins with ${KIT_CASES}`,
      remedy: `run \`gpu-check step\` with a kit of version ${KIT_VERSION} (\`internevo profile prepare\`)`,
    });
  return { about, lines };
}

/** The timelines that must be at hand before a profile is assembled. */
export function timelinesOf(results: CheckResults): NamedTimeline[] {
  return [...answersOf(results).lines.values()]
    .filter((line) => line.outcome === "passed" && line.case.startsWith(`${KIT_CASES}slice.`))
    .flatMap((line) =>
      answerOf(SliceAnswerSchema, line).rounds.map(({ timeline }) => ({ file: line.file, name: timeline })),
    );
}

const passed = ({ lines }: Answers, id: string): CaseLine | undefined => {
  const line = lines.get(id);
  return line?.outcome === "passed" ? line : undefined;
};
const neededLine = (answers: Answers, id: string, why: string): CaseLine => {
  const line = passed(answers, id);
  if (line) return line;
  const found = answers.lines.get(id);
  throw refused(`${KIT_CASES}${id} has no answer`, {
    field: `${KIT_CASES}${id}`,
    value: found?.outcome ?? null,
    message: `${why}${found?.message ? `; it ended with: ${found.message}` : ""}`,
    remedy: AGAIN,
  });
};

const hostsOf = (events: readonly TrainerEvent[]) =>
  events.flatMap((event) => (event.event === "hosts" ? event.hosts : []));

/** What a rank takes beside its plan, as the trainer said and plans count it. */
function runtimeBytesOf(answers: Answers): number {
  const started = answerOf(
    RuntimeAnswerSchema,
    neededLine(answers, "runtime", "says how much memory a rank takes beside its plan"),
  ).events.find((event) => event.event === "started");
  const runtimeBytes = started?.memory["runtime"];
  if (runtimeBytes === undefined)
    throw refused("the trainer did not say what it takes beside its arena", {
      field: `${KIT_CASES}runtime`,
      message: "has no event `started` with memory.runtime",
      remedy: AGAIN,
    });
  return plannedRuntimeBytes(runtimeBytes, answers.about.cluster);
}

/** What the trainer answered of slices. */
function slicesOf(answers: Answers) {
  return answers.about.pieces.flatMap((id) => {
    const line = id.startsWith("slice.") ? passed(answers, id) : undefined;
    return line ? [{ line, ...answerOf(SliceAnswerSchema, line) }] : [];
  });
}

type AnsweredSlice = ReturnType<typeof slicesOf>[number];

function notesOf(answers: Answers, slices: readonly AnsweredSlice[]): string[] {
  const { about } = answers;
  const missing = about.pieces.filter((id) => passed(answers, id) === undefined);
  const files = [...new Set([...answers.lines.values()].map(({ file }) => file))];
  return [
    `assembled from ${files.map(printable).join(", ")}, which gpu-check wrote ` +
      `on a node without services; jobs ${about.jobs.map(printable).join(", ")}`,
    ...slices.filter(({ noRoom }) => noRoom === true).map(({ piece }) => noRoomNote(piece.request)),
    ...(missing.length === 0
      ? []
      : [
          `${formatCounted(missing.length, "piece")} of ${formatInteger(about.pieces.length)} without an answer: ${missing
            .map((id) => `${KIT_CASES}${id} (${answers.lines.get(id)?.outcome ?? "not run"})`)
            .join(", ")}`,
        ]),
  ];
}

function measuredSlices(slices: readonly AnsweredSlice[], timelines: ReadonlyMap<string, MeasuredTrace>) {
  return slices
    .filter(({ noRoom, rounds }) => noRoom !== true && rounds.length > 0)
    .map(({ line, piece, rounds }) =>
      ofRounds(
        rounds.map(({ events: said, timeline }) => {
          const trace = timelines.get(timelineKey({ file: line.file, name: timeline }));
          if (!trace) throw new Error(`${timeline} of ${line.file} was not read`);
          return measuredSlice(
            piece.request,
            piece.microBatches,
            laneEventsOf(trace),
            hostsOf(said),
            LIMITS.mostOthersPercent,
          );
        }),
      ),
    );
}

/**
 * A profile out of what `gpu-check` collected for a kit: the code that assembles what a cluster's own probe
 * and trainer say. Pieces that did not pass are left out with a note, but for the device and its memory,
 * without which nothing can be planned.
 * @param timelines every timeline of {@link timelinesOf}.
 * @throws ProblemError `profile-invalid` for answers of several kits, none, or without the device.
 */
export function assembleKit(results: CheckResults, timelines: ReadonlyMap<string, MeasuredTrace>): Profile {
  const answers = answersOf(results);
  const { about } = answers;
  const runtimeBytes = runtimeBytesOf(answers);
  const describing = neededLine(answers, "probe.1", "describes the device");
  const probed = about.pieces
    .filter((id) => id.startsWith("probe."))
    .flatMap((id) => {
      const line = passed(answers, id);
      return line ? [answerOf(ProbeAnswerSchema, line)] : [];
    });
  const events: ProbeEvent[] = probed.flatMap((answer) => answer.events);
  const slices = slicesOf(answers);
  const [run] = results.runs;
  const composed = assembleProfile({
    events,
    cluster: about.cluster,
    digest: about.probeDigest ?? "not known",
    threadsPerRank: about.threadsPerRank,
    command: run?.commandLine ?? "gpu-check",
    measuredAt: new Date(describing.at),
    seconds: probed.reduce((sum, { seconds }) => sum + seconds, 0),
    runtimeBytes,
    overlapPlacements: probed.flatMap(({ piece }) => piece.overlapPlacements),
  });
  const hosts = hostsOfProbe(events);
  const { profile, disturbances } = completedProfile({
    composed,
    hosts,
    slices: measuredSlices(slices, timelines),
    notes: notesOf(answers, slices),
    limits: LIMITS,
  });
  const quality = qualityOf(profile, LIMITS, { measuredAgain: 0, hosts, disturbances });
  return validate(
    ProfileSchema,
    {
      ...profile,
      name: `${profile.name}, assembled`,
      quality,
      provenance: { ...profile.provenance, source: `${composed.provenance.source}, assembled from files` },
    },
    "profile-invalid",
    "the assembled profile",
  );
}

/** Timelines by what names them. */
export const timelineMap = (
  all: readonly (NamedTimeline & { readonly trace: MeasuredTrace })[],
): Map<string, MeasuredTrace> => new Map(all.map(({ trace, ...named }) => [timelineKey(named), trace]));
