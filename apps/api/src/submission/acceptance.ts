import { weightsWarnings } from "@internevo/data";
import { checkCluster, type LaunchCapabilities } from "@internevo/launcher";
import { ProblemError, type JobSpec, type MeasuredFirst, type ProblemDetail } from "@internevo/domain";
import { jobDirectory, jobsDirectory, measuredFirst, type Measuring } from "@internevo/stages";
import { isUuid, projectOf, type Database } from "@internevo/store";
import type { FastifyReply, FastifyRequest } from "fastify";
import { actorOf } from "../http/auth.ts";
import { projectForSubmission, visibleTo, withProjectOf } from "../http/rights.ts";
import { assertNamedProfile } from "../profile-source.ts";
import { goneSignal } from "../http/gone.ts";
import type { Workers } from "../work/workers.ts";
import { acceptJob, type AcceptedJob, type NamedWeights } from "./accept-job.ts";
import { batchWarnings } from "./batch-warnings.ts";
import { assertFits, fitTask, runtimeMemory } from "./check-fit.ts";
import { assertQuota } from "./check-quota.ts";
import {
  assertRoom,
  assertTextFits,
  checkpointRoom,
  roomWarnings,
  textRoom,
  textWarnings,
} from "./check-room.ts";
import { notOwnWeights } from "./check-weights.ts";
import { clusterWarnings } from "./cluster-warnings.ts";
import { removalOfWeights, removedWeights, type WeightsOfJob } from "./kept-weights.ts";
import { replanningWarnings } from "./replanning-warnings.ts";

interface Remarks {
  readonly warnings: ProblemDetail[];
  readonly measuredFirst?: MeasuredFirst;
}

export interface AcceptanceOptions {
  readonly database: Database;
  readonly workers: Workers;
  readonly capabilities: LaunchCapabilities;
  /** What measures, for what a job measures first; undefined where that is not known here. */
  readonly measuring: Measuring | undefined;
}

/** What a submitted job must pass, and what is said of it besides. */
export class Acceptance {
  readonly #options: AcceptanceOptions;

  constructor(options: AcceptanceOptions) {
    this.#options = options;
  }

  accept(request: FastifyRequest, reply: FastifyReply): Promise<AcceptedJob> {
    const gone = goneSignal(reply);
    const { database, workers, capabilities } = this.#options;
    return acceptJob(withProjectOf(actorOf(request), request.body), {
      project: async (job) => {
        const project = await projectForSubmission(database.db, request, job.project, "project");
        await assertQuota(database.db, job, project);
      },
      cluster: (job) => checkCluster(job.cluster, capabilities),
      profile: (job) => assertNamedProfile(database.db, job, "cluster.profile", visibleTo(actorOf(request))),
      data: (task) => workers.checkData(task, gone),
      weights: (weights) => this.#weights(weights, visibleTo(actorOf(request)), gone),
      room: async (job, textBytes) => {
        const { dataDirectory } = capabilities;
        assertRoom(await this.#roomOf(job), dataDirectory ?? "");
        assertTextFits(await textRoom(textBytes, dataDirectory), job, dataDirectory ?? "");
      },
      fit: (spec) => this.#fit(spec, gone),
    });
  }

  /** Whose checkpoint they are is asked first: what is said of them tells of what is there. */
  async #weights(
    weights: NamedWeights,
    only: string | null,
    gone: AbortSignal,
  ): Promise<WeightsOfJob | undefined> {
    const { database, workers, capabilities } = this.#options;
    const { dataDirectory } = capabilities;
    const owner = await this.#ownerOf(weights, gone);
    if (owner === null || dataDirectory === undefined) {
      await workers.checkWeights({ ...weights, ofJob: null }, gone);
      return undefined;
    }
    const project = await projectOf(database.db, "job", owner);
    if (project === undefined || (only !== null && project !== only))
      throw notOwnWeights(weights.initialWeights);
    return this.#ofJob(weights, owner, dataDirectory, gone);
  }

  async #ownerOf({ initialWeights }: NamedWeights, gone: AbortSignal): Promise<string | null> {
    const { workers, capabilities } = this.#options;
    const { dataDirectory } = capabilities;
    if (dataDirectory === undefined) return null;
    const place = { weightsPath: initialWeights, jobsDirectory: jobsDirectory(dataDirectory) };
    return workers.ownerOfWeights(place, gone);
  }

  /** What is missing since a removal is said to be removed; what somebody has put there again will do. */
  async #ofJob(
    weights: NamedWeights,
    owner: string,
    dataDirectory: string,
    gone: AbortSignal,
  ): Promise<WeightsOfJob> {
    const path = weights.initialWeights;
    const removal = await removalOfWeights(this.#options.database.db, owner, path);
    if (removal && !removal.isDone) throw removedWeights(path, removal);
    try {
      const ofJob = jobDirectory(dataDirectory, owner);
      await this.#options.workers.checkWeights({ ...weights, ofJob }, gone);
    } catch (error) {
      if (removal && error instanceof ProblemError && error.code === "data-invalid")
        throw removedWeights(path, removal);
      throw error;
    }
    return { path, owner, removedAt: removal?.at ?? null };
  }

  /** The weights of a job that is to go on, where they are another job's of which something was removed. */
  async weightsAgain(
    { initialWeights, model }: JobSpec,
    gone: AbortSignal,
  ): Promise<WeightsOfJob | undefined> {
    const { database, capabilities } = this.#options;
    const { dataDirectory } = capabilities;
    if (initialWeights === undefined || dataDirectory === undefined) return undefined;
    const owner = await this.#ownerOf({ initialWeights, model }, gone);
    if (owner === null || !isUuid(owner)) return undefined;
    if (await removalOfWeights(database.db, owner, initialWeights))
      return this.#ofJob({ initialWeights, model }, owner, dataDirectory, gone);
    return { path: initialWeights, owner, removedAt: null };
  }

  async #fit(spec: JobSpec, gone: AbortSignal): Promise<void> {
    const { database, measuring, workers } = this.#options;
    const runtime = await runtimeMemory(database, spec, measuring, { workers, gone });
    const result = await workers.quickPlan(fitTask(spec, runtime, measuring?.threadsPerRank), gone);
    await assertFits(spec, result, runtime);
  }

  /** What an accepted job is told: what speaks against it all the same, and what is measured first. */
  async remarks({ spec, dataTokens, textBytes }: AcceptedJob, gone: AbortSignal): Promise<Remarks> {
    const { database, measuring, capabilities, workers } = this.#options;
    const { dataDirectory } = capabilities;
    const first =
      measuring &&
      (await measuredFirst(database, spec, measuring, (job, fresh) => workers.firstCounts(job, fresh, gone)));
    return {
      warnings: [
        ...batchWarnings(spec, dataTokens),
        ...clusterWarnings(spec, capabilities),
        ...weightsWarnings(spec),
        ...replanningWarnings(spec),
        ...roomWarnings(await this.#roomOf(spec), spec, dataDirectory ?? ""),
        ...textWarnings(await textRoom(textBytes, dataDirectory), spec, dataDirectory ?? ""),
      ],
      ...(first ? { measuredFirst: first } : {}),
    };
  }

  #roomOf(job: JobSpec) {
    return checkpointRoom(job, this.#options.capabilities.dataDirectory);
  }
}
