/** What the tool of test clusters needs of this launcher. */
export { KubernetesApi, KubernetesRefusalError } from "./api.ts";
export { IS_APPLIED, jobSetName } from "./objects.ts";
export { readKubernetesRecord, type KubernetesRecord } from "./record.ts";
export { POD_FILES } from "./script.ts";
export type { KubernetesSettings } from "./settings.ts";
export type { JobSetStatus, Pod, Workload } from "./status.ts";
