import { Type, type Static } from "typebox";
import { formatCounted, formatInteger } from "./figures.ts";
import type { Estimates } from "./planning.ts";
import { aboutSeconds } from "./units.ts";

/** What a job that is submitted now measures before it is planned. */
export const MeasuredFirstSchema = Type.Object(
  {
    missing: Type.Integer({
      minimum: 0,
      description:
        "points that no fresh profile of the cluster has: other sequence lengths, batches and models have other shapes",
    }),
    noisy: Type.Integer({
      minimum: 0,
      description:
        "points of a noisy fresh profile that are measured once more; those measured again before are not among them",
    }),
    seconds: Type.Union([Type.Number({ minimum: 0 }), Type.Null()], {
      description:
        "about how long that takes, by the last measurement of the cluster; null where there was none, or nothing is measured",
    }),
    profile: Type.Union([Type.String(), Type.Null()], {
      description: "the profile that is used or completed; null where the whole cluster is measured",
    }),
  },
  { additionalProperties: false },
);
export type MeasuredFirst = Static<typeof MeasuredFirstSchema>;

/** What is measured before a job is planned, in a sentence. */
export function measuredFirstWords({ missing, noisy, seconds, profile }: MeasuredFirst): string {
  const about = seconds === null ? "" : `, which takes ${aboutSeconds(seconds)} by the last measurement`;
  if (profile === null)
    return `Before it is planned, the cluster is measured: ${formatCounted(missing, "point")}${about}.`;
  if (missing + noisy === 0) return `Nothing is measured before it is planned: profile ${profile} is used.`;
  const what = [
    ...(missing > 0 ? [`${formatCounted(missing, "point")} that profile ${profile} lacks`] : []),
    ...(noisy > 0
      ? [
          missing > 0
            ? `${formatInteger(noisy)} that it has noisily`
            : `${formatCounted(noisy, "point")} that profile ${profile} has noisily`,
        ]
      : []),
  ];
  return `Before it is planned, it measures ${what.join(" and ")}${about}.`;
}

/** Which figures of a planning result are estimates, and what measures them: two sentences, a line each. */
export function estimatesWords({
  profile,
  needed,
  missing,
  noisy,
  estimatedProfile,
  measuredBy,
  planWith,
  varies = [],
}: Estimates): string {
  const kinds = [
    [missing.modules, "module"],
    [missing.collectives, "collective"],
    [missing.overlaps, "overlap"],
    [missing.slices, "slice of the trainer", "slices of the trainer"],
  ] as const;
  const listed = kinds.flatMap(([count, one, many]) => (count > 0 ? [formatCounted(count, one, many)] : []));
  const lacking = kinds.reduce((sum, [count]) => sum + count, 0);
  const rest = "that they rest on";
  const all = `${formatCounted(needed, "measurement")} ${rest}`;
  const are = `${formatInteger(noisy)} ${noisy === 1 ? "is" : "are"}`;
  const also = noisy > 0 ? `, and ${are} noisy` : "";
  const faults =
    lacking > 0
      ? `profile ${profile} lacks ${formatInteger(lacking)} of the ${all} (${listed.join(", ")})${also}`
      : `of the ${all}, ${are} noisy in profile ${profile}`;
  const partly = lacking + noisy < needed ? "partly" : "wholly";
  const then = planWith === null ? "" : ` Then plan with \`--profile ${planWith}\`.`;
  const only = varies.length === 0 ? "" : `, for the ${varies.join(" and ")} of the job only`;
  const begin = estimatedProfile === undefined ? "" : `${estimatedProfile}\n`;
  if (lacking + noisy === 0) return `${begin}\`${measuredBy}\` measures the cluster itself${only}.${then}`;
  return `${begin}Step times, token rates and MFU are ${lacking > 0 ? `${partly} estimated` : "uncertain"}: ${faults}.\n\`${measuredBy}\` measures them on the cluster itself${only}.${then}`;
}
