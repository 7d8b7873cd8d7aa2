export * from "./connection-loss.ts";
export * from "./database.ts";
export type { NotificationHub } from "./notifications.ts";
export * from "./migrate.ts";
export * from "./pages.ts";
export * from "./trace.ts";
export * from "./leases.ts";
export * from "./host-queue.ts";
export * from "./queue-reads.ts";
export { getQueueSettings } from "./queue-standing.ts";
export { noProject } from "./no-project.ts";
export * from "./projects.ts";
export * from "./usage.ts";
export * from "./outbox.ts";
export type { Asker } from "./events.ts";
export * from "./dead-letters.ts";
export * from "./jobs.ts";
export * from "./give-way.ts";
export * from "./job-events.ts";
export {
  jobHistoryPage,
  subscribeJobEventPages,
  subscribeJobEvents,
  type SubscriptionOptions,
} from "./job-feed.ts";
export { readHistory } from "./history-reads.ts";
export * from "./job-reads.ts";
export * from "./profiles.ts";
export * from "./plannings.ts";
export * from "./trials.ts";
export * from "./runs.ts";
export * from "./run-totals.ts";
export * from "./loss-curves.ts";
export * from "./plan-changes.ts";
export * from "./compared-steps.ts";
export * from "./workloads.ts";
export * from "./proposals.ts";
export * from "./workload-changes.ts";
export * from "./plan-in-use.ts";
export * from "./access.ts";
export * from "./webhooks.ts";
export * from "./webhook-deliveries.ts";
export * from "./tracker-cursors.ts";
export * from "./running-jobs.ts";
export * from "./users.ts";
export { FIRST_TOKEN_NAME, GIVEN_TOKEN_NAME } from "./reserved-names.ts";
export * from "./retention.ts";
export * from "./retention-rows.ts";
export * from "./reconcile.ts";
export type { FiringState, LoggedType } from "./schema/index.ts";
export {
  SnapshotReader,
  type CopiedTable,
  type JobStand,
  type SequenceValue,
  type Snapshot,
} from "./backup/snapshot.ts";
export { isKnownMigration, newestMigration, type MigrationMark } from "./migrations.ts";
export { restoreDatabase, type StoredTable } from "./backup/restore.ts";
export { restoredReason, type Settled } from "./backup/settle.ts";
