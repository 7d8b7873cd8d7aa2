import type { Static, TObject } from "typebox";
import type { Service } from "@internevo/service-kit";
import { trackerStandings } from "@internevo/store";
import { followTracker, trackedProjects, trackersOf, type TrackerConfig } from "@internevo/trackers";
import { Counter, Gauge } from "prom-client";

/** How long a figure of all jobs may be handed out again: it is read by whoever scrapes. */
const STANDING_SECONDS = 5;

/** Sends metrics of runs to MLflow and TensorBoard, beside whatever else the service does. */
export function startTrackers(service: Service<Static<TObject>> & { readonly config: TrackerConfig }): void {
  const { config, database, log, shutdown, health } = service;
  const trackers = trackersOf(config);
  if (trackers.length === 0) return;
  const projects = trackedProjects(config);
  const registers = [health.registry];
  const events = new Counter({
    name: "internevo_tracker_events_total",
    help: "Events of jobs that were sent",
    labelNames: ["tracker"],
    registers,
  });
  const failures = new Counter({
    name: "internevo_tracker_failures_total",
    help: "Tries that failed; what was not sent is tried again",
    labelNames: ["tracker"],
    registers,
  });
  const kinds = new Map(trackers.map(({ key, kind }) => [key, kind]));
  let readAt = -Infinity;
  const behind = new Gauge({
    name: "internevo_tracker_jobs_behind",
    help: "Jobs of which something is still to be sent",
    labelNames: ["tracker"],
    registers,
    async collect() {
      if (performance.now() - readAt < 1000 * STANDING_SECONDS) return;
      readAt = performance.now();
      for (const standing of await trackerStandings(database.db, [...kinds.keys()])) {
        const tracker = kinds.get(standing.tracker) ?? "";
        behind.set({ tracker }, standing.behind);
        failing.set({ tracker }, standing.failing);
        failingSeconds.set({ tracker }, standing.failingSeconds);
        lagSeconds.set({ tracker }, standing.lagSeconds);
      }
    },
  });
  const failing = new Gauge({
    name: "internevo_tracker_jobs_failing",
    help: "Jobs of which the last try failed",
    labelNames: ["tracker"],
    registers,
  });
  const failingSeconds = new Gauge({
    name: "internevo_tracker_failing_seconds",
    help: "How long nothing could be sent of the job that has waited longest",
    labelNames: ["tracker"],
    registers,
  });
  const lagSeconds = new Gauge({
    name: "internevo_tracker_lag_seconds",
    help: "Age of the oldest event that was not sent",
    labelNames: ["tracker"],
    registers,
  });
  for (const tracker of trackers) {
    const { kind, key } = tracker;
    // A rate needs a first value.
    events.inc({ tracker: kind }, 0);
    failures.inc({ tracker: kind }, 0);
    log.info({ tracker: key, projects }, "metrics of runs are sent there");
    const following = followTracker({
      database,
      tracker,
      projects,
      signal: shutdown,
      onSent: (count) => events.inc({ tracker: kind }, count),
      onFailed: ({ jobId, error, waitSeconds, givenUp }) => {
        failures.inc({ tracker: kind });
        log.warn(
          { tracker: key, jobId, error, waitSeconds },
          givenUp ? "a job's metrics could not be sent, and were given up" : "a job's metrics wait",
        );
      },
      onError: (error, what) => log.warn({ err: error, tracker: key }, what),
    });
    service.onShutdown(() => following);
  }
}
