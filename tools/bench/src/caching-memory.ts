import type { MemoryMap, MemoryPiece } from "@internevo/contracts";
import { CachingAllocator, StepClock, type Allocation, type ClockSpan as Span } from "@internevo/simulator";

export interface CachingMemory {
  /** Most that was in use at once: what no allocator can do with less. */
  readonly liveBytes: number;
  /** Most that the caching allocator took from the device. */
  readonly reservedBytes: number;
  /** Most that lay free in pieces between what was in use, when it could not be given back. */
  readonly strandedBytes: number;
}

/** Steps that are replayed: the second meets what the first left behind. */
const STEPS = 2;

type Use = Span & { readonly index: number; readonly bytes: number };

const overlaps = (a: MemoryPiece, b: MemoryPiece): boolean =>
  a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;

/** Pieces of which some share bytes by turns, coloured so that those of one colour do not. */
function coloursOf(pieces: readonly MemoryPiece[]): ReadonlyMap<MemoryPiece, number> {
  const colours = new Map<MemoryPiece, number>();
  for (const piece of pieces) {
    const taken = new Set(
      [...colours].flatMap(([other, colour]) => (overlaps(piece, other) ? [colour] : [])),
    );
    let colour = 0;
    while (taken.has(colour)) colour += 1;
    colours.set(piece, colour);
  }
  return colours;
}

/**
 * When pieces are asked for and given back. Of a phase that uses pieces which share bytes each has its part,
 * one after the other.
 */
function usesOf(pieces: readonly MemoryPiece[], clock: StepClock): Use[] {
  const byTurns = pieces.filter(({ uses }) => uses !== undefined);
  const colours = coloursOf(byTurns);
  return pieces.flatMap((piece, index): Use[] => {
    const { lifetime, bytes } = piece;
    if (lifetime.kind === "step") return [];
    const colour = colours.get(piece);
    if (colour === undefined || lifetime.kind !== "work")
      return clock.spansOf(piece).map((span) => ({ ...span, index, bytes }));
    return lifetime.phases.flatMap((phase) => {
      const beside = byTurns.filter(
        (other) => other.lifetime.kind === "work" && other.lifetime.phases.includes(phase),
      );
      const turns = 1 + Math.max(...beside.map((other) => colours.get(other) ?? 0));
      const part = (of: number, { from, to }: Span): number => from + ((to - from) * of) / turns;
      return clock
        .spansOf({ lifetime: { ...lifetime, phases: [phase] } })
        .map((span) => ({ from: part(colour, span), to: part(colour + 1, span), index, bytes }));
    });
  });
}

/**
 * What a caching allocator makes of the trainer's own requests: every piece of a rank's memory is asked for
 * when it is used first, and given back after its last use, in the order of the step; what holds the whole
 * step is asked for once, before it.
 * @throws RangeError for a step of so many passes that the clock leaves some out.
 */
export function cachingMemory(map: MemoryMap): CachingMemory {
  const clock = new StepClock(map);
  if (clock.passes.some(({ shown }) => !shown))
    throw new RangeError(
      `${map.operations.length} passes are too many to replay one by one; take fewer micro-batches`,
    );
  const allocator = new CachingAllocator(Infinity);
  const pieces = map.pieces.filter(({ bytes }) => bytes > 0);
  for (const { bytes, lifetime } of pieces) if (lifetime.kind === "step") allocator.allocate(bytes);
  const moments = usesOf(pieces, clock).flatMap(({ from, to, index, bytes }) => [
    { at: from, index, bytes },
    { at: to, index, bytes: 0 },
  ]);
  // What ends at a moment is given back before the next is asked for.
  moments.sort((a, b) => a.at - b.at || a.bytes - b.bytes || a.index - b.index);
  let strandedBytes = 0;
  for (let step = 0; step < STEPS; step += 1) {
    const held = new Map<number, Allocation>();
    for (const { index, bytes } of moments) {
      const own = held.get(index);
      if (bytes === 0) {
        if (own) allocator.free(own);
        held.delete(index);
      } else if (own === undefined) held.set(index, allocator.allocate(bytes));
      strandedBytes = Math.max(strandedBytes, allocator.statistics().strandedBytes);
    }
  }
  const { peakAllocatedBytes, peakReservedBytes } = allocator.statistics();
  return { liveBytes: peakAllocatedBytes, reservedBytes: peakReservedBytes, strandedBytes };
}
