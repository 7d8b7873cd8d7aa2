import { JOB_STATES, RUN_FIGURE_NAMES, type RunFigure } from "@internevo/domain";
import { Type, type Static } from "typebox";

/** Jobs that one comparison may have. */
export const COMPARED_JOBS = { least: 2, most: 8 } as const;

/** Points of a loss curve in a comparison. */
export const MOST_CURVE_POINTS = 400;

const nullable = <S extends ReturnType<typeof Type.Number>>(schema: S) => Type.Union([schema, Type.Null()]);

const DifferingFieldsSchema = Type.Array(
  Type.Object({
    field: Type.String(),
    values: Type.Array(Type.Unknown(), { description: "one a job, in the order asked for; null: none" }),
  }),
);

const LossPointsSchema = Type.Array(Type.Object({ step: Type.Integer(), loss: Type.Number() }));

/** What differs between jobs, and how they trained. Every list has one item a job, in the order asked for. */
export const ComparisonSchema = Type.Object({
  jobs: Type.Array(
    Type.Object({
      id: Type.String(),
      name: Type.String(),
      project: Type.String(),
      state: Type.Enum(JOB_STATES),
      createdAt: Type.String(),
      plan: Type.Union([Type.String(), Type.Null()], {
        description: "the plan that it trained with, as tables show it; null: none was chosen",
      }),
    }),
  ),
  file: Type.Unsafe<Static<typeof DifferingFieldsSchema>>({
    ...DifferingFieldsSchema,
    description: "fields of the job files that differ, but for name, project and cluster",
  }),
  plan: DifferingFieldsSchema,
  cluster: DifferingFieldsSchema,
  profile: DifferingFieldsSchema,
  figures: Type.Array(
    Type.Object({
      figure: Type.Unsafe<RunFigure>(Type.Enum([...RUN_FIGURE_NAMES])),
      values: Type.Array(nullable(Type.Number())),
    }),
    {
      description:
        "figures of the trainings that any of the jobs has: of its report, or of its steps so far; peak memory is the trial's",
    },
  ),
  losses: Type.Array(
    Type.Object({
      training: Type.Unsafe<Static<typeof LossPointsSchema>>({
        ...LossPointsSchema,
        description: `at most ${MOST_CURVE_POINTS} points, each the mean of steps that follow one another, at the last of them`,
      }),
      validation: Type.Unsafe<Static<typeof LossPointsSchema>>({
        ...LossPointsSchema,
        description: `losses of held-out data, thinned in the same way: at most ${MOST_CURVE_POINTS} points`,
      }),
    }),
  ),
});
export type Comparison = Static<typeof ComparisonSchema>;
