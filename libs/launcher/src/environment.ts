import { RUN_MARKER } from "./process/processes.ts";

/**
 * The local stack's own mark stays, so that it still finds the ranks, and so does what the CUDA backend is
 * told. Settings of mathematics and threading libraries that would slow the ranks down or fight with
 * `threadsPerRank`.
 */
const DROPPED =
  /^(OPENBLAS_|OMP_|GOMP_|KMP_|MKL_|DNNL_|OMPI_|PMIX_|PRTE_|SLURM_(?!CONF$|JWT$)|NODE_OPTIONS$|DATABASE_URL$|NATS_URL$|INTERNEVO_(?!STACK_DIRECTORY$|CUDA_LIBRARY$|CUDA_ATTENTION$|NCCL_LIBRARY$|NCCL_POLICY$|SHARE_GPU$))/;

/**
 * What ranks tell one another at their start goes by messages. By default it is in memory that they share with
 * mpirun, under locks: a rank that is killed while it holds one leaves mpirun waiting for ever in its end.
 */
export const PMIX_ENVIRONMENT = { PMIX_MCA_gds: "hash" } as const;

/**
 * Whether ranks give their core away while they wait, "1" or "0". It is Open MPI's own variable. Whoever starts the
 * services sets it who knows better than the number of cores.
 */
export const YIELDS_VARIABLE = "OMPI_MCA_mpi_yield_when_idle";

/**
 * What ranks are told where {@link YIELDS_VARIABLE} was asked for: as soon as something else had a waiting rank's
 * core, it sleeps between its looks. A mere yield takes half of such a core; but ranks that are alone there, and only
 * too many, find each other sooner by yields.
 */
export const PAUSES_VARIABLE = "INTERNEVO_RANKS_PAUSE";

/**
 * The environment of native ranks: the caller's without foreign tuning and without the service's own settings
 * and secrets, and with what every run needs.
 * @param extra set last, over everything else.
 */
export function rankEnvironment(options: {
  base: NodeJS.ProcessEnv;
  marker: string;
  temporaryDirectory: string;
  threadsPerRank: number;
  extra?: Readonly<Record<string, string>>;
}): Record<string, string> {
  const kept = Object.entries(options.base).filter(
    (entry): entry is [string, string] => entry[1] !== undefined && !DROPPED.test(entry[0]),
  );
  return {
    ...Object.fromEntries(kept),
    LC_ALL: "C.UTF-8",
    TMPDIR: options.temporaryDirectory,
    OMP_NUM_THREADS: String(options.threadsPerRank),
    OPENBLAS_NUM_THREADS: String(options.threadsPerRank),
    ...PMIX_ENVIRONMENT,
    ...(process.getuid?.() === 0 ? { OMPI_ALLOW_RUN_AS_ROOT: "1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: "1" } : {}),
    ...(options.base[YIELDS_VARIABLE] === "1" ? { [PAUSES_VARIABLE]: "1" } : {}),
    [RUN_MARKER]: options.marker,
    ...options.extra,
  };
}
