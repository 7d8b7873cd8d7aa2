import { Type, type Static } from "typebox";
import type { Service, ServiceDefinition } from "@internevo/service-kit";
import { MOST_AT_A_TIME, nativeConfig, profilingConfig, profilingSettings } from "@internevo/stages";
import {
  acquireLease,
  finishFiring,
  fireDueWorkloads,
  getFiring,
  projectOf,
  pruneDeliveries,
  removeOrphanedPlannings,
} from "@internevo/store";
import { trackerConfig } from "@internevo/trackers";
import { deliverWebhooks, PRIVATE_ADDRESSES_SETTING, webhookConfig } from "@internevo/webhooks";
import { Counter } from "prom-client";
import { replan } from "./consumers/replan.ts";
import { JobGauges } from "./job-gauges.ts";
import { pursueProposals } from "./pursue-proposals.ts";
import { startRetention } from "./retention.ts";
import { nextRunAt } from "./schedule.ts";
import { startTrackers } from "./trackers.ts";

const ConfigSchema = Type.Object({
  ...nativeConfig,
  ...profilingConfig,
  ...webhookConfig,
  ...trackerConfig,
  INTERNEVO_REPLANNER_WEBHOOK_TIMEOUT_SECONDS: Type.Number({
    default: 15,
    exclusiveMinimum: 0,
    maximum: 60,
    description: "how long a receiver of a webhook may take to answer",
  }),
  INTERNEVO_REPLANNER_POLL_SECONDS: Type.Number({
    default: 5,
    exclusiveMinimum: 0,
    maximum: 3600,
    description: "how often due workloads are looked for",
  }),
});

const PRUNE_SECONDS = 60;
const DAY_SECONDS = 86_400;

/** Sends events to the webhooks of projects, beside whatever else the service does. */
function startWebhooks(service: Service<Static<typeof ConfigSchema>>): void {
  const { config, database, log, shutdown, health } = service;
  const attempts = new Counter({
    name: "internevo_webhook_attempts_total",
    help: "Requests to webhooks by how they ended",
    labelNames: ["outcome"],
    registers: [health.registry],
  });
  const delivering = deliverWebhooks({
    database,
    privateAddresses: config[PRIVATE_ADDRESSES_SETTING],
    timeoutSeconds: config.INTERNEVO_REPLANNER_WEBHOOK_TIMEOUT_SECONDS,
    signal: shutdown,
    onAttempt: (outcome) => attempts.inc({ outcome }),
    onError: (error, what) => log.warn({ err: error }, what),
  });
  service.onShutdown(() => delivering);
  service.every(PRUNE_SECONDS, "old deliveries", async () => {
    // One of the replicas does it; nobody gives the lease back before the next time.
    if (!(await acquireLease(database.db, "maintenance:webhooks", service.name, PRUNE_SECONDS / 2))) return;
    const pruned = await pruneDeliveries(database.db);
    if (pruned > 0) log.info({ pruned }, "old deliveries were deleted");
  });
}

/**
 * Plans workloads again by their schedule, delivers events to webhooks, sends metrics of runs to trackers, and removes
 * what ended jobs leave when its time has come.
 */
export const replanner: ServiceDefinition<typeof ConfigSchema> = {
  name: "replanner",
  configSchema: ConfigSchema,
  start(service) {
    const { config, database, log } = service;
    const settings = { ...profilingSettings(config), top: 10 };
    startWebhooks(service);
    startTrackers(service);
    startRetention(service);
    new JobGauges(database, service.health.registry);
    service.every(config.INTERNEVO_REPLANNER_POLL_SECONDS, "the schedule", async () => {
      const fired = await database.transaction((tx) => fireDueWorkloads(tx, { now: new Date(), nextRunAt }));
      for (const { id, workloadId, state, outcome } of fired)
        log.info({ firingId: id, workloadId, state, outcome }, "a workload was due");
    });
    service.every(config.INTERNEVO_REPLANNER_POLL_SECONDS, "proposals", async () => {
      for (const { proposal, workload } of await pursueProposals(database, new Date(), service.name))
        log.info(
          { proposalId: proposal.id, workloadId: workload.id, state: proposal.state, jobId: proposal.jobId },
          "a run was asked to go over to a proposed plan",
        );
    });
    service.every(DAY_SECONDS, "plannings of workloads that are gone", async () => {
      const removed = await removeOrphanedPlannings(database.db);
      if (removed > 0) log.info({ removed }, "plannings of workloads that are gone were removed");
    });
    service.handleCommand({
      type: "workload.replan",
      concurrency: MOST_AT_A_TIME,
      projectOf: async ({ workloadId }) =>
        (await projectOf(database.db, "workload", workloadId)) ?? undefined,
      handler: replan(settings, database),
      // A workload that is removed takes its firings with it.
      isObsolete: async ({ firingId }) => (await getFiring(database.db, firingId)) === undefined,
      onGivenUp: async (tx, { firingId }, failure) =>
        void (await finishFiring(tx, firingId, { state: "failed", outcome: failure.message })),
    });
  },
};
