import { UsageQuerySchema, UsageSchema } from "@internevo/contracts";
import { ProblemError } from "@internevo/domain";
import { monthOf, storableInstant, usageBetween, type Database } from "@internevo/store";
import { actorOf } from "../http/auth.ts";
import type { ApiInstance } from "../http/instance.ts";
import { visibleTo } from "../http/rights.ts";
import { answers } from "./shapes.ts";

/** So many days at most are one question: a row a day is an answer that can be looked at. */
const MOST_DAYS = 3700;

/** Who used how many GPU-hours. */
export function registerUsageRoutes(
  app: ApiInstance,
  options: { readonly database: Database; readonly now: () => Date },
): void {
  app.get(
    "/usage",
    {
      config: { role: "viewer", scope: "visible" },
      schema: {
        tags: ["projects"],
        summary: "GPU-hours by project, owner, cluster or day",
        description:
          "GPUs times the hours that a job, or a scheduled measurement, held their hosts; what holds them still " +
          "counts until now. A cluster with a scheduler of its own lends no hosts to the queue: " +
          "nothing is counted there.",
        querystring: UsageQuerySchema,
        response: answers({ 200: UsageSchema }),
      },
    },
    async (request) => {
      const { by = "project", project, from, to } = request.query;
      const now = options.now();
      const first = from === undefined ? monthOf(now) : storableInstant(from);
      const last = to === undefined ? now : storableInstant(to);
      const days = (last.getTime() - first.getTime()) / 86_400_000;
      // At the first instant of a month nothing was used yet.
      if (days < 0 || (days === 0 && from !== undefined) || days > MOST_DAYS)
        throw new ProblemError("bad-request", "from and to are not valid", [
          {
            field: "to",
            value: last.toISOString(),
            message: days > 0 ? `is more than ${MOST_DAYS} days after from` : "is not after from",
            remedy: days > 0 ? "ask for less at once" : "give a later instant",
          },
        ]);
      const visible = visibleTo(actorOf(request));
      // A project that the token may not see has used nothing, as one that is not there.
      if (visible !== null && project !== undefined && project !== visible)
        return { from: first.toISOString(), to: last.toISOString(), by, gpuHours: 0, rows: [] };
      return usageBetween(options.database.db, { from: first, to: last, by, project }, visible);
    },
  );
}
