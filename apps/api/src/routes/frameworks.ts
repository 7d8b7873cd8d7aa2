import {
  ExportedConfigurationSchema,
  ExportRequestSchema,
  ImportAnswerSchema,
  ImportRequestSchema,
} from "@internevo/contracts";
import { ProblemError, resolveJob } from "@internevo/domain";
import { importedJob } from "@internevo/frameworks";
import type { FastifyReply } from "fastify";
import { strToU8, zipSync } from "fflate";
import { actorOf } from "../http/auth.ts";
import type { ApiInstance } from "../http/instance.ts";
import { visibleTo } from "../http/rights.ts";
import { profileOfName } from "../profile-source.ts";
import { EXAMPLES } from "./advice-examples.ts";
import { goneSignal } from "../http/gone.ts";
import { answers, withExample } from "./shapes.ts";
import { planOf, subjectOf, type SubjectSource } from "./subject.ts";

/** A file system's idea of a name: what a job is called may be any text. */
const fileName = (text: string): string =>
  text
    .replace(/[^\w.-]+/g, "-")
    .replace(/^[-.]+|[-.]+$/g, "")
    .slice(0, 100) || "plan";
/** An archive's time of its files: the same configuration is the same archive. */
const NO_TIME = new Date("2000-01-01T00:00:00Z");

/** Plans as configurations of other frameworks, and such configurations as plans. */
export function registerFrameworkRoutes(app: ApiInstance, source: SubjectSource): void {
  registerExport(app, source);
  registerImport(app, source);
}

function registerExport(app: ApiInstance, source: SubjectSource): void {
  const { workers } = source;
  const exported = answers({ 200: ExportedConfigurationSchema });
  app.post(
    "/plans/export",
    {
      config: { role: "viewer", scope: "subject" },
      schema: {
        tags: ["plans"],
        summary: "A plan as configuration of another framework, with what that cannot express",
        description: "With `Accept: application/zip` the files themselves, as an archive.",
        body: withExample(ExportRequestSchema, EXAMPLES.export),
        response: {
          ...exported,
          200: {
            description: "OK",
            content: {
              "application/json": { schema: ExportedConfigurationSchema },
              "application/zip": { schema: { type: "string", format: "binary" } },
            },
          },
        },
      },
    },
    async (request, reply) => {
      const { framework, plan } = request.body;
      const gone = goneSignal(reply);
      const subject = await subjectOf(request.body, visibleTo(actorOf(request)), source);
      const asked = plan === undefined ? null : await planOf(plan, "plan", subject, source, gone);
      const configuration = await workers.advise<"export">(
        { kind: "export", ...subject, framework, plan: asked },
        gone,
      );
      if (!/\bapplication\/zip\b/.test(request.headers.accept ?? "")) return configuration;
      const archive = zipSync(
        Object.fromEntries(configuration.files.map(({ name, text }) => [name, strToU8(text)])),
        { mtime: NO_TIME },
      );
      (reply as FastifyReply)
        .type("application/zip")
        .header(
          "content-disposition",
          `attachment; filename="${fileName(subject.spec.name)}-${framework}.zip"`,
        );
      return (reply as FastifyReply).send(Buffer.from(archive));
    },
  );
}

function registerImport(app: ApiInstance, source: SubjectSource): void {
  const { workers } = source;
  app.post(
    "/plans/import",
    {
      config: { role: "viewer", scope: "any" },
      schema: {
        tags: ["plans"],
        summary:
          "How good a configuration of another framework is: its plan, where that stands, and the best plan",
        body: withExample(ImportRequestSchema, EXAMPLES.import),
        response: answers({ 200: ImportAnswerSchema }),
      },
    },
    async (request, reply) => {
      const {
        name = "imported",
        memoryPerGpu,
        profile: profileName,
        framework,
        files,
        nodes,
        gpusPerNode,
      } = request.body;
      const gone = goneSignal(reply);
      const launch = {
        ...(nodes === undefined ? {} : { nodes }),
        ...(gpusPerNode === undefined ? {} : { gpusPerNode }),
      };
      const imported = await workers.advise<"import">({ kind: "import", framework, files, ...launch }, gone);
      const profile = await profileOfName(source.database.db, profileName, "profile", {
        project: visibleTo(actorOf(request)),
        // What is imported says nothing of a launcher.
        launcher: null,
      });
      const memory = memoryPerGpu ?? profile.cluster.memoryPerGpuBytes;
      if (memory === undefined)
        throw new ProblemError("bad-request", "the memory of a GPU is not known", [
          {
            field: "memoryPerGpu",
            message: "is missing, and the profile does not say it",
            remedy: "give for example 80GB",
          },
        ]);
      const job = importedJob(imported, name, memory, profileName);
      const planning = await workers.plan(
        { spec: resolveJob(job), profile, top: 1, locate: imported.plan },
        gone,
      );
      return { imported, job, planning };
    },
  );
}
