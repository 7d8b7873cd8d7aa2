import { COMPARED_JOBS, ComparisonSchema, type JobDetail } from "@internevo/contracts";
import { Line, ProblemError } from "@internevo/domain";
import { getJobDetail, type Database } from "@internevo/store";
import { Type } from "typebox";
import { compareJobs } from "../comparison.ts";
import { noJobOfQuery } from "../http/absent.ts";
import { actorOf } from "../http/auth.ts";
import type { ApiInstance } from "../http/instance.ts";
import type { LongReads } from "../http/long-reads.ts";
import { visibleTo } from "../http/rights.ts";
import { answers, LONG_READ } from "./shapes.ts";

/** @throws ProblemError `bad-request` for a job that is named twice */
function assertDistinct(ids: readonly string[]): void {
  const twice = ids.find((id, index) => ids.indexOf(id) < index);
  if (twice === undefined) return;
  throw new ProblemError("bad-request", "a job is compared with others, not with itself", [
    { field: "job", value: twice, message: "is named twice", remedy: "name each job once" },
  ]);
}

/** How several jobs differ, and what came of it. */
export function registerComparison(
  app: ApiInstance,
  { database, longReads }: { readonly database: Database; readonly longReads: LongReads },
): void {
  const { least, most } = COMPARED_JOBS;
  app.get(
    "/comparison",
    {
      config: { role: "viewer", scope: "jobs" },
      schema: {
        tags: ["jobs"],
        summary: "How several jobs differ, and how they trained",
        description:
          `\`job\` stands ${least} to ${most} times. A job that is not there, or not to be seen, is a 404. ` +
          LONG_READ,
        querystring: Type.Object(
          { job: Type.Array(Line(100), { minItems: least, maxItems: most, description: "ids of jobs" }) },
          { additionalProperties: false },
        ),
        response: answers({ 200: ComparisonSchema }),
      },
    },
    async (request, reply) => {
      const ids = request.query.job;
      assertDistinct(ids);
      const visible = visibleTo(actorOf(request));
      return longReads.run(reply, () =>
        database.db.transaction(
          async (tx) => {
            const jobs: JobDetail[] = [];
            for (const id of ids) {
              const job = await getJobDetail(tx, id, visible);
              if (!job) throw noJobOfQuery(id);
              jobs.push(job);
            }
            return compareJobs(tx, jobs);
          },
          { isolationLevel: "repeatable read", accessMode: "read only" },
        ),
      );
    },
  );
}
