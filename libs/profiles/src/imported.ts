import { parseProfile } from "@internevo/cost-model";
import { printable, ProblemError, type CollectiveCurve, type Profile } from "@internevo/domain";

/** Curves that another program measured, and what it said of itself. */
export interface ImportedCurves {
  readonly curves: readonly CollectiveCurve[];
  /** Versions that the file names, by what they are of. */
  readonly versions: Readonly<Record<string, string>>;
  /** What people should know of the numbers. */
  readonly notes: readonly string[];
}

export const curveKey = ({
  op,
  groupSize,
  placement,
}: Pick<CollectiveCurve, "op" | "groupSize" | "placement">): string =>
  `${op} over ${groupSize} ranks, ${placement}`;

/** Times that a profile may hold, in seconds. */
export const LEAST_SECONDS = 1e-10;
export const MOST_SECONDS = 86_400;
/** A number as programs write it, without signs of other locales. */
export const PLAIN_NUMBER = /^\d+(?:\.\d*)?(?:[eE][+-]?\d+)?$/;

/** `invalid-file` in all importers: the file, the line or field, what is wrong, what to do. */
export function importFault(
  file: string,
  field: string,
  value: unknown,
  message: string,
  remedy: string,
): ProblemError {
  return new ProblemError("profile-invalid", `${file}: ${field} ${message}`, [
    { field, value, message, remedy },
  ]);
}

/**
 * A profile with curves that were measured elsewhere: a curve of the same operation, group size and placement
 * is replaced, others are added.
 * @throws ProblemError `profile-invalid` when the result contradicts itself: a group larger than the cluster,
 * say, or a curve that was given twice.
 */
export function withCurves(
  base: Profile,
  imported: readonly (ImportedCurves & { readonly file: string })[],
): Profile {
  const added = new Map<string, { curve: CollectiveCurve; file: string }>();
  for (const { file, curves } of imported) {
    for (const curve of curves) {
      const key = curveKey(curve);
      const before = added.get(key);
      if (before)
        throw importFault(
          file,
          key,
          curve.points.length,
          `is in ${before.file} too`,
          "give one measurement of each curve",
        );
      added.set(key, { curve, file });
    }
  }
  const kept = base.collectives.filter((curve) => !added.has(curveKey(curve)));
  const replaced = base.collectives.length - kept.length;
  const { provenance } = base;
  const notes = [
    `${added.size} curves of collectives were imported (${replaced} replaced): ${[...added].map(([key, { file }]) => `${key} from ${printable(file)}`).join("; ")}`,
    ...new Set(imported.flatMap((each) => each.notes.map(printable))),
  ];
  const profile: Profile = {
    ...base,
    collectives: [...kept, ...[...added.values()].map(({ curve }) => curve)],
    provenance: {
      ...provenance,
      versions: {
        ...provenance.versions,
        ...(Object.assign({}, ...imported.map(({ versions }) => versions)) as Record<string, string>),
      },
      notes: [...provenance.notes, ...notes],
    },
  };
  return parseProfile(profile, `${base.name} with what was imported`);
}
