/** Parts of a job's page, by what its address says: `?part=plans`. Without it the page begins with the first. */
export const JOB_PARTS = {
  overview: "Overview",
  plans: "Plans",
  memory: "Memory and time",
  log: "Log",
  files: "Files",
  configuration: "Configuration",
} as const;
export type JobPart = keyof typeof JOB_PARTS;
