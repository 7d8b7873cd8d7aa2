import { WrittenJobSchema } from "@internevo/contracts";
import { jobToChange } from "@internevo/domain";
import { getJob, type Database } from "@internevo/store";
import type { FastifyReply } from "fastify";
import { jobYaml } from "../artifacts/job-yaml.ts";
import { noJob } from "../http/absent.ts";
import type { ApiInstance } from "../http/instance.ts";
import { answers, IdParams } from "./shapes.ts";

const YAML_TYPE = "application/yaml";

/** The job file of a job, so that it can be changed and submitted again. */
export function registerJobFile(app: ApiInstance, { database }: { readonly database: Database }): void {
  app.get(
    "/jobs/:id/file",
    {
      config: { role: "viewer", scope: "job" },
      schema: {
        tags: ["jobs"],
        summary: "A job's file, to be changed and submitted again",
        description:
          "`POST /jobs` of it makes the same job again. What follows from other fields is left out, so that it " +
          "follows a change of those. What the submitted file stated stays, also where it equals the default. " +
          `With \`Accept: ${YAML_TYPE}\` it is YAML.`,
        params: IdParams,
        response: {
          ...answers({ 200: WrittenJobSchema }),
          200: {
            description: "OK",
            content: {
              "application/json": { schema: WrittenJobSchema },
              [YAML_TYPE]: { schema: { type: "string" } },
            },
          },
        },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const job = await getJob(database.db, id);
      if (!job) throw noJob(id);
      const file = jobToChange(job.spec, job.stated);
      if (!/\bapplication\/yaml\b/.test(request.headers.accept ?? "")) return file;
      const answer = reply as FastifyReply;
      return answer.type(`${YAML_TYPE}; charset=utf-8`).send(jobYaml(file));
    },
  );
}
