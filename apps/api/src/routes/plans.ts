import { PlanRequestSchema } from "@internevo/contracts";
import { PlanningResultSchema, resolveJob, type JobSpec, type Profile } from "@internevo/domain";
import type { ApiInstance } from "../http/instance.ts";
import type { Workers } from "../work/workers.ts";
import { innerJob } from "./inner-job.ts";
import { answers } from "./shapes.ts";

export interface PlanRoutesOptions {
  readonly workers: Workers;
  /** The profile that a plan is made with. @throws ProblemError `profile-missing`, `profile-invalid` */
  readonly profileFor: (spec: JobSpec, name: string | undefined) => Promise<Profile>;
}

export function registerPlanRoutes(app: ApiInstance, options: PlanRoutesOptions): void {
  app.post(
    "/plans",
    {
      config: { role: "viewer" },
      schema: { tags: ["plans"], summary: "Search the plans of a job; nothing is stored", body: PlanRequestSchema, response: answers({ 200: PlanningResultSchema }) },
    },
    async (request, reply) => {
      const { job, top = 10, profile } = request.body;
      const spec = innerJob(() => resolveJob(job));
      const measured = await options.profileFor(spec, profile);
      const gone = new AbortController();
      reply.raw.once("close", () => gone.abort());
      return options.workers.plan({ spec, profile: measured, top }, gone.signal);
    },
  );
}
