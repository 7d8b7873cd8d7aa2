import { parseProfile } from "@internevo/cost-model";
import {
  printable,
  ProblemError,
  ProfileSchema,
  validate,
  type CollectiveCurve,
  type ModuleShape,
  type ModuleTime,
  type Overlap,
  type Profile,
} from "@internevo/domain";
import { Type, type Static } from "typebox";
import { curveKey } from "./imported.ts";

const { device, executor, collectives, modules, overlaps, slices } = ProfileSchema.properties;

/** A profile, or any parts of one: what it has takes the place of what another has. */
export const ProfilePartsSchema = Type.Object({
  device: Type.Optional(Type.Partial(device, { additionalProperties: false })),
  executor: Type.Optional(executor),
  collectives: Type.Optional(collectives),
  modules: Type.Optional(modules),
  overlaps: Type.Optional(overlaps),
  slices,
});
export type ProfileParts = Static<typeof ProfilePartsSchema>;

/** Parts of a profile in a file that somebody wrote, or that `profile show --json` did. */
export function parseProfileParts(text: string, file: string): ProfileParts {
  const fault = (message: string, remedy: string, cause?: unknown): ProblemError =>
    new ProblemError(
      "profile-invalid",
      `${file} has no part of a profile`,
      [{ field: "files", value: file, message, remedy }],
      { cause },
    );
  let document: unknown;
  try {
    document = JSON.parse(text);
  } catch (error) {
    throw fault(
      (error as Error).message,
      "give JSON, as `internevo profile show NAME --json` writes it",
      error,
    );
  }
  const parts = validate(ProfilePartsSchema, document, "profile-invalid", `the profile in ${file}`);
  if (Object.values(partsOf(parts)).every((count) => count === 0) && parts.device === undefined)
    throw fault("has neither device, modules, collectives, overlaps nor slices", "give at least one of them");
  return parts;
}

const partsOf = ({ collectives = [], modules = [], overlaps = [], slices = [] }: ProfileParts) => ({
  modules: modules.length,
  curves: collectives.length,
  overlaps: overlaps.length,
  slices: slices.length,
});

/** Modules that curves are drawn through together. */
const kindOf = ({ module, pass, precision }: ModuleShape): string => `${module} ${pass} ${precision}`;
const exactly = (value: unknown): string =>
  JSON.stringify(Object.entries(value as object).sort(([a], [b]) => (a < b ? -1 : 1)));

/** Measured modules replace equal ones, and all estimates of their kind: those were never of one shape. */
function replacedModules(old: readonly ModuleTime[], own: readonly ModuleTime[]): ModuleTime[] {
  const measured = own.filter(({ estimated }) => estimated !== true);
  const kinds = new Set(measured.map(({ shape }) => kindOf(shape)));
  const shapes = new Set(measured.map(({ shape }) => exactly(shape)));
  return [
    ...old.filter(
      ({ shape, estimated }) =>
        !shapes.has(exactly(shape)) && !(estimated === true && kinds.has(kindOf(shape))),
    ),
    ...measured,
  ];
}

/** A measured curve replaces the same operation over as many ranks of the same placement. */
function replacedCurves(old: readonly CollectiveCurve[], own: readonly CollectiveCurve[]): CollectiveCurve[] {
  const measured = own.flatMap((curve) => {
    const points = curve.points.filter(({ estimated }) => estimated !== true);
    return points.length === 0 ? [] : [{ ...curve, points }];
  });
  const keys = new Set(measured.map(curveKey));
  return [...old.filter((curve) => !keys.has(curveKey(curve))), ...measured];
}

function replacedOverlaps(old: readonly Overlap[], own: readonly Overlap[]): Overlap[] {
  const measured = own.filter(({ estimated }) => estimated !== true);
  const operations = new Set(measured.map(({ op }) => op));
  return [...old.filter(({ op, estimated }) => !(estimated === true && operations.has(op))), ...measured];
}

/**
 * A profile with parts that were measured in the place of its own; estimates among the parts count for nothing.
 * @throws ProblemError `profile-invalid` when the result contradicts itself
 */
export function withParts(base: Profile, file: string, parts: ProfileParts): Profile {
  const counts = Object.entries(partsOf(parts)).flatMap(([name, count]) =>
    count > 0 ? [`${count} ${name}`] : [],
  );
  const said = [...counts, ...Object.keys(parts.device ?? {}).map((name) => `device.${name}`)];
  return parseProfile(
    {
      ...base,
      device: { ...base.device, ...parts.device },
      ...(parts.executor === undefined ? {} : { executor: parts.executor }),
      modules: replacedModules(base.modules, parts.modules ?? []),
      collectives: replacedCurves(base.collectives, parts.collectives ?? []),
      overlaps: replacedOverlaps(base.overlaps, parts.overlaps ?? []),
      ...(parts.slices === undefined ? {} : { slices: [...(base.slices ?? []), ...parts.slices] }),
      provenance: {
        ...base.provenance,
        notes: [...base.provenance.notes, `From ${printable(file)}: ${said.join(", ")}`],
      },
    },
    `${base.name} with what was imported`,
  );
}
