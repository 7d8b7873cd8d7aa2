import { randomInt } from "node:crypto";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { DevicePeak } from "@internevo/cost-model";
import {
  formatCounted,
  type Cluster,
  type Failure,
  type HostUse,
  type SliceRequest,
  type SliceShape,
} from "@internevo/domain";
import {
  measuredSlice,
  noRoomNote,
  ofRounds,
  sliceRun,
  type SliceOfRounds,
  type TokensOfRun,
} from "@internevo/profiles";
import { encodeHeader } from "@internevo/data";
import { launchRanks, type LaunchOptions, type LaunchOutcome, type Trainer } from "@internevo/launcher";
import { readTimeline } from "./read-timeline.ts";

const TIMEOUT_SECONDS = 300;
export type SlicesOutcome =
  | { readonly status: "measured"; readonly slices: SliceOfRounds[]; readonly notes: string[] }
  | { readonly status: "stopped" }
  | { readonly status: "failed"; readonly failure: Failure };

export interface MeasureSlicesOptions extends Omit<LaunchOptions<Trainer>, "program" | "config" | "onEvent"> {
  readonly trainer: Trainer;
  readonly slices: readonly SliceRequest[];
  readonly cluster: Pick<Cluster, "device">;
  readonly device: DevicePeak;
  /** About so long each is measured in a round. */
  readonly secondsPerSlice: number;
  /** Times that each is run. */
  readonly rounds: number;
  /** Share of a host's processor time from which on others count as a disturbance of a round. */
  readonly mostOthersPercent: number;
  /** Rounds that an attempt before this one has run, and slices that it had no room for. */
  readonly kept?: {
    readonly roundsOf: (slice: SliceRequest) => readonly SliceOfRounds[];
    readonly hasNoRoom: (slice: SliceRequest) => boolean;
  };
  /** One was run, once in every round. */
  readonly onSlice: (shape: SliceShape) => void;
  readonly onRound?: (run: SliceOfRounds) => void;
  readonly onNoRoom?: (slice: SliceRequest) => void;
}

/** Tokens at random, as in a text all rows of the embedding are read. */
async function writeTokens(path: string, { count, vocabularySize }: TokensOfRun): Promise<void> {
  const bytesPerToken = vocabularySize <= 2 ** 16 ? 2 : 4;
  const tokens = bytesPerToken === 2 ? new Uint16Array(count) : new Uint32Array(count);
  for (let at = 0; at < count; at += 1) tokens[at] = randomInt(vocabularySize);
  await writeFile(
    path,
    Buffer.concat([
      encodeHeader({ bytesPerToken, tokenCount: count, vocabularySize }),
      Buffer.from(tokens.buffer),
    ]),
  );
}

/** Runs one slice once. */
async function runSlice(
  slice: SliceRequest,
  path: string,
  options: MeasureSlicesOptions,
): Promise<SliceOfRounds | Exclude<LaunchOutcome, { readonly status: "completed" }>> {
  const {
    trainer,
    ranks,
    runDirectory,
    slices: _slices,
    cluster,
    device,
    secondsPerSlice,
    rounds: _rounds,
    mostOthersPercent,
    onSlice: _onSlice,
    kept: _kept,
    onRound: _onRound,
    onNoRoom: _onNoRoom,
    ...place
  } = options;
  const timelinePath = join(runDirectory, "slice.json");
  const { config, tokens, microBatches } = sliceRun(slice, {
    ranks,
    threadsPerRank: place.threadsPerRank,
    cluster,
    device,
    seconds: secondsPerSlice,
    dataPath: path,
    timelinePath,
  });
  await writeTokens(path, tokens);
  const hosts: HostUse[] = [];
  const outcome = await launchRanks({
    ...place,
    ranks,
    runDirectory,
    program: trainer,
    config,
    timeoutSeconds: TIMEOUT_SECONDS,
    onEvent: (event) => event.event === "hosts" && hosts.push(...event.hosts),
  });
  if (outcome.status !== "completed") return outcome;
  return measuredSlice(slice, microBatches, await readTimeline(timelinePath), hosts, mostOthersPercent);
}

/**
 * Runs slices with the trainer itself: a model of the asked widths, unsharded, on all ranks of the cluster,
 * and takes the parts of a layer from its timeline. Modules that are measured one by one, on data that are
 * still in the caches and without the waits of ranks for one another, say less than a step needs. A slice
 * that does not fit the memory is left out, with a note.
 */
export async function measureSlices(options: MeasureSlicesOptions): Promise<SlicesOutcome> {
  const { runDirectory, slices, kept, onSlice, onRound, onNoRoom } = options;
  await mkdir(runDirectory, { recursive: true });
  const rounds = slices.map((slice): SliceOfRounds[] => [...(kept?.roundsOf(slice) ?? [])]);
  const withoutRoom = new Set<SliceRequest>(slices.filter((slice) => kept?.hasNoRoom(slice)));
  const hadNoRoom = new Set(withoutRoom);
  const begin = performance.now();
  for (let round = 0; round < options.rounds; round += 1) {
    for (const [index, slice] of slices.entries()) {
      if (hadNoRoom.has(slice) || (rounds[index]?.length ?? 0) > round) continue;
      if (!withoutRoom.has(slice)) {
        const run = await runSlice(slice, join(runDirectory, "slice.tokens"), options);
        if ("shape" in run) {
          rounds[index]?.push(run);
          onRound?.(run);
        } else if (run.status === "stopped") return { status: "stopped" };
        else if (run.failure.code === "out-of-memory") {
          withoutRoom.add(slice);
          onNoRoom?.(slice);
        } else return { status: "failed", failure: run.failure };
      }
      onSlice(slice.shape);
    }
  }
  const measured = rounds.filter((own) => own.length > 0).map(ofRounds);
  const notes = [...withoutRoom].map(noRoomNote);
  if (measured.length > 0)
    notes.push(
      `${formatCounted(measured.length, "micro-batch", "micro-batches")} in the trainer, ${formatCounted(options.rounds, "time")} each, took ${((performance.now() - begin) / 1000).toFixed(1)} s`,
    );
  return { status: "measured", slices: measured, notes };
}
