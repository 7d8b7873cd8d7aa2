import { hoursFault, ProblemError, sizeFault, type JobSpec } from "@internevo/domain";
import { clusterRanks } from "@internevo/plan";
import { getProject, nextMonth, type Queryable } from "@internevo/store";

/**
 * A job that its project's quotas never let begin, or not before the next month, is refused when it is
 * submitted: whoever submits it can do something about it. One that only has to wait for GPUs is not.
 * @throws ProblemError `quota-exceeded`; `not-found` without such a project
 */
export async function assertQuota(db: Queryable, spec: JobSpec, name: string): Promise<void> {
  const project = await getProject(db, name, "project");
  const gpus = clusterRanks(spec);
  const tooLarge = sizeFault(project, gpus);
  if (tooLarge !== undefined)
    throw new ProblemError("quota-exceeded", tooLarge, [
      {
        field: "cluster",
        value: `${spec.cluster.nodes} × ${spec.cluster.gpusPerNode}`,
        message: `has ${gpus} GPUs, and project ${name} may use ${project.maxGpus} at once`,
        remedy: "use fewer nodes, or ask an admin for a larger maxGpus (`internevo project set`)",
      },
    ]);
  const usedUp = hoursFault(project);
  if (usedUp !== undefined)
    throw new ProblemError("quota-exceeded", usedUp, [
      {
        field: "project",
        value: name,
        message: usedUp.replace(`project ${name} `, ""),
        remedy: `wait until ${nextMonth(new Date()).toISOString().slice(0, 10)}, or ask an admin for a larger gpuHoursPerMonth (\`internevo project set\`)`,
      },
    ]);
}
