import { PlanRequestSchema } from "@internevo/contracts";
import {
  PlanningResultSchema,
  resolveJob,
  withHeadroom,
  type JobSpec,
  type Profile,
} from "@internevo/domain";
import { actorOf } from "../http/auth.ts";
import type { ApiInstance } from "../http/instance.ts";
import { visibleTo } from "../http/rights.ts";
import type { Workers } from "../work/workers.ts";
import { EXAMPLES } from "./advice-examples.ts";
import { withEstimates } from "./estimates.ts";
import { goneSignal } from "../http/gone.ts";
import { innerJob } from "./inner-job.ts";
import { answers, withExample } from "./shapes.ts";
import { headroomOf } from "./subject.ts";

export interface PlanRoutesOptions {
  readonly workers: Workers;
  /**
   * The profile that a plan is made with. @param visible the project of the token; null: it sees all.
   * @throws ProblemError `profile-missing`, `profile-invalid`
   */
  readonly profileFor: (spec: JobSpec, name: string | undefined, visible: string | null) => Promise<Profile>;
}

export function registerPlanRoutes(app: ApiInstance, options: PlanRoutesOptions): void {
  app.post(
    "/plans",
    {
      config: { role: "viewer", scope: "any" },
      schema: {
        tags: ["plans"],
        summary: "Search the plans of a job; nothing is stored",
        body: withExample(PlanRequestSchema, EXAMPLES.plans),
        response: answers({ 200: PlanningResultSchema }),
      },
    },
    async (request, reply) => {
      const { job, top = 10, show = "families", profile, headroom } = request.body;
      const kept = headroomOf(headroom);
      const spec = withHeadroom(
        innerJob(() => resolveJob(job)),
        kept,
        "headroom",
      );
      const measured = await options.profileFor(spec, profile, visibleTo(actorOf(request)));
      const gone = goneSignal(reply);
      const result = await options.workers.plan(
        { spec, profile: measured, top, ...(show === "plans" ? { plans: top } : {}) },
        gone,
      );
      return withEstimates(
        result,
        { asked: request.body, subject: { spec, profile: measured } },
        result.candidates.length > 0 ? [spec] : [],
        options.workers,
        gone,
      );
    },
  );
}
