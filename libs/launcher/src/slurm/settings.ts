import { Type, type Static } from "typebox";

const strict = { additionalProperties: false } as const;

/**
 * Goes to Slurm as one word: names, lists and expressions of it (`a100&nvlink`, `gpu:h200:8`), never an
 * option of its own.
 */
const SlurmWord = (description: string) =>
  Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 1000,
      pattern: "^[A-Za-z0-9_@%+][A-Za-z0-9_@%+.,:;&|*/=()\\[\\]-]*$",
      description,
    }),
  );
const Seconds = (description: string, minimum: number, maximum = 366 * 86_400) =>
  Type.Optional(Type.Integer({ minimum, maximum, description }));
const Argument = Type.String({ minLength: 1, maxLength: 4096, pattern: "^[^\\u0000-\\u001f]+$" });
const Module = Type.String({ minLength: 1, maxLength: 200, pattern: "^[A-Za-z0-9_][A-Za-z0-9_.+/=-]*$" });
const AbsolutePath = Type.String({ minLength: 1, maxLength: 4096, pattern: "^/[^\\u0000-\\u001f]*$" });

/**
 * How an installation reaches a cluster that Slurm runs, and what it asks Slurm for. A job names the cluster
 * and says how many nodes and ranks.
 */
export const SlurmSettingsSchema = Type.Object(
  {
    partition: SlurmWord("where jobs go; default: the site's"),
    account: SlurmWord("who pays"),
    qos: SlurmWord("quality of service"),
    constraint: SlurmWord("features that nodes must have"),
    reservation: SlurmWord("reservation that jobs use"),
    gres: SlurmWord("generic resources of each node, for example gpu:8"),
    exclusive: Type.Optional(
      Type.Boolean({
        default: true,
        description: "whole nodes: what runs beside a job would spoil its figures",
      }),
    ),
    memoryPerNodeBytes: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: 2 ** 50,
        description: "memory to ask for; 0: all of a node's; default: the site's",
      }),
    ),
    timeLimitSeconds: Seconds(
      "walltime of one Slurm job; training goes on in the next one from its checkpoint; default: the partition's",
      60,
    ),
    saveSeconds: Seconds(
      "how long before the time limit ranks are told to write a " +
        "checkpoint and end; Slurm may be up to a minute early; default 120",
      1,
      86_400,
    ),
    queueLimitSeconds: Seconds(
      "a job that has waited for so long is taken back; default: it may wait for ever",
      1,
    ),
    nodeLossSeconds: Seconds(
      "a job that needs more nodes than are left is taken back after so long; default 600",
      0,
    ),
    pollSeconds: Type.Optional(
      Type.Number({
        minimum: 0.2,
        maximum: 600,
        description: "between two questions to Slurm's controller; default 10",
      }),
    ),
    start: Type.Optional(
      Type.Enum(["srun", "mpirun"], { description: "what starts ranks inside the allocation; default srun" }),
    ),
    mpi: SlurmWord("srun's --mpi: pmix, pmix_v4, pmi2, …; default pmix"),
    mpirun: Type.Optional(
      Type.Array(Argument, {
        minItems: 1,
        maxItems: 100,
        description: "with start: mpirun: the command and options of Open MPI; default mpirun",
      }),
    ),
    launchOptions: Type.Optional(
      Type.Array(Argument, {
        maxItems: 100,
        description: "more options of srun or mpirun, for example --container-image=…",
      }),
    ),
    container: Type.Optional(
      Type.Array(Argument, {
        maxItems: 100,
        description:
          "command that runs a rank's command inside a container, for example apptainer exec image.sif",
      }),
    ),
    modules: Type.Optional(
      Type.Array(Module, { maxItems: 100, description: "environment modules to load, in this order" }),
    ),
    environment: Type.Optional(
      Type.Record(Type.String({ pattern: "^[A-Za-z_][A-Za-z0-9_]*$" }), Type.String({ maxLength: 10_000 }), {
        description: "variables of the ranks",
      }),
    ),
    directory: Type.Optional(
      Type.Unsafe<string>({
        ...AbsolutePath,
        description:
          "for scripts, events and logs of jobs, on a file system " +
          "that all nodes share; default: below the data directory",
      }),
    ),
    rest: Type.Optional(
      Type.Object(
        {
          url: Type.String({
            pattern: "^(https?://[^\\s]+|unix:/[^\\s]+)$",
            description: "slurmrestd: http://HOST:PORT, or unix:/PATH",
          }),
          tokenFile: Type.Optional(
            Type.Unsafe<string>({
              ...AbsolutePath,
              description: "holds the JSON web token; read anew for each question",
            }),
          ),
          version: Type.Optional(
            Type.Enum(["v0.0.38"], { description: "of the interface; default v0.0.38" }),
          ),
        },
        { ...strict, description: "ask slurmrestd and not the command-line tools" },
      ),
    ),
  },
  strict,
);
export type SlurmSettings = Static<typeof SlurmSettingsSchema>;

export const SlurmClusterSchema = Type.Object({ slurm: SlurmSettingsSchema }, strict);
export type SlurmCluster = Static<typeof SlurmClusterSchema>;
