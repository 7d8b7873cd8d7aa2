import { join, resolve } from "node:path";
import { DEFAULT_MOST_OTHERS_PERCENT } from "@internevo/domain";
import { probeIn, trainerIn } from "@internevo/launcher";
import { DEFAULT_MOST_SPREAD_PERCENT, DEFAULT_SLICE_ROUNDS } from "@internevo/profiles";
import { Type, type Static, type TObject } from "typebox";
import type { ProfilingSettings } from "./obtain-profile.ts";
import { DEFAULT_LOST_RANK_LIMIT } from "./retry-lost-ranks.ts";

/** Where the workspace's own build installs the native programs. */
const OWN_NATIVE_DIRECTORY = join(import.meta.dirname, "..", "..", "..", "native", "dist");

/** Configuration of every service that starts native programs, by the name of the environment variable. */
export const nativeConfig = {
  INTERNEVO_DATA_DIRECTORY: Type.String({
    minLength: 1,
    description: "datasets, checkpoints and records of runs; shared by all nodes of a cluster",
  }),
  INTERNEVO_NATIVE_DIRECTORY: Type.String({
    default: OWN_NATIVE_DIRECTORY,
    minLength: 1,
    description: "where the native programs are installed (`bin/internevo-trainer`, `bin/internevo-probe`)",
  }),
  INTERNEVO_CLUSTERS: Type.Optional(
    Type.String({
      minLength: 1,
      description: "file that describes the hosts of clusters with launcher: ssh",
    }),
  ),
  INTERNEVO_MACHINE_DIRECTORY: Type.String({
    default: "/tmp",
    minLength: 1,
    description:
      "folder in which the installations of one machine see each other, so " +
      "that they do not measure at the same time; the same for all of them",
  }),
  INTERNEVO_DATA_ROOTS: Type.Optional(
    Type.String({
      minLength: 1,
      description:
        "folders, with : between them, below which jobs may name data " +
        "and weights; default: wherever the service's user may read",
    }),
  ),
  INTERNEVO_MOST_OTHERS_PERCENT: Type.Number({
    default: DEFAULT_MOST_OTHERS_PERCENT,
    minimum: 0,
    maximum: 100,
    description:
      "share of a host's processor time that other processes and machines may " +
      "take while ranks measure; above it the measurement counts as disturbed",
  }),
  INTERNEVO_LOST_RANK_LIMIT: Type.Integer({
    default: DEFAULT_LOST_RANK_LIMIT,
    minimum: 1,
    maximum: 1000,
    description:
      "attempts in a row, of a measurement or a trial, that may lose ranks " +
      "without progress; then the job is held",
  }),
  INTERNEVO_THREADS_PER_RANK: Type.Integer({
    default: 1,
    minimum: 1,
    maximum: 1024,
    description: "threads a rank computes with",
  }),
};

/** Configuration of every service that measures clusters. */
export const profilingConfig = {
  INTERNEVO_PROFILE_FRESH_SECONDS: Type.Integer({
    default: 24 * 3600,
    minimum: 0,
    description: "how long a measured profile is used without measuring again",
  }),
  INTERNEVO_PROBE_SAMPLES: Type.Integer({
    default: 5,
    minimum: 1,
    maximum: 10_000,
    description: "samples of a point at least",
  }),
  INTERNEVO_PROBE_POINT_SECONDS: Type.Number({
    default: 0.25,
    exclusiveMinimum: 0,
    maximum: 600,
    description: "bound on the time for one point",
  }),
  INTERNEVO_PROBE_SILENCE_SECONDS: Type.Number({
    default: 600,
    exclusiveMinimum: 0,
    maximum: 86_400,
    description: "a probe that reports nothing for so long, beyond the time for its points, counts as hung",
  }),
  INTERNEVO_PROBE_SPREAD: Type.Number({
    default: 0.05,
    exclusiveMinimum: 0,
    maximum: 1,
    description: "relative spread at which a point is measured well enough",
  }),
  INTERNEVO_PROFILE_SLICE_ROUNDS: Type.Integer({
    default: DEFAULT_SLICE_ROUNDS,
    minimum: 1,
    maximum: 100,
    description: "times that the trainer runs each of its micro-batches, so that a disturbance spoils one",
  }),
  INTERNEVO_PROFILE_MOST_SPREAD_PERCENT: Type.Number({
    default: DEFAULT_MOST_SPREAD_PERCENT,
    exclusiveMinimum: 0,
    maximum: 1e9,
    description:
      "10th to 90th percentile of a point's samples over their median: beyond it a point is noisy and measured again",
  }),
  INTERNEVO_PROFILE_AGAIN_SECONDS: Type.Number({
    default: 60,
    minimum: 0,
    maximum: 86_400,
    description: "time for measuring noisy points again; 0: never",
  }),
};

type ProfilingConfig = Static<TObject<typeof nativeConfig & typeof profilingConfig>>;

export const profilingSettings = (config: ProfilingConfig): ProfilingSettings => ({
  probe: probeIn(config.INTERNEVO_NATIVE_DIRECTORY),
  trainer: trainerIn(config.INTERNEVO_NATIVE_DIRECTORY),
  dataDirectory: resolve(config.INTERNEVO_DATA_DIRECTORY),
  machineDirectory: resolve(config.INTERNEVO_MACHINE_DIRECTORY),
  clustersFile: config.INTERNEVO_CLUSTERS,
  threadsPerRank: config.INTERNEVO_THREADS_PER_RANK,
  lostRankLimit: config.INTERNEVO_LOST_RANK_LIMIT,
  silenceSeconds: config.INTERNEVO_PROBE_SILENCE_SECONDS,
  freshForSeconds: config.INTERNEVO_PROFILE_FRESH_SECONDS,
  effort: {
    minimumSamples: config.INTERNEVO_PROBE_SAMPLES,
    maximumSecondsPerPoint: config.INTERNEVO_PROBE_POINT_SECONDS,
    targetRelativeSpread: config.INTERNEVO_PROBE_SPREAD,
    sliceRounds: config.INTERNEVO_PROFILE_SLICE_ROUNDS,
  },
  limits: {
    mostSpreadPercent: config.INTERNEVO_PROFILE_MOST_SPREAD_PERCENT,
    mostOthersPercent: config.INTERNEVO_MOST_OTHERS_PERCENT,
    againSeconds: config.INTERNEVO_PROFILE_AGAIN_SECONDS,
  },
});
