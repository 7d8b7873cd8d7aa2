import type { MemoryMap, MemoryPiece } from "@internevo/contracts";
import { memoryPlaceName } from "@internevo/domain";
import type { ClockSpan as Span, StepClock } from "@internevo/simulator";

/** Pieces beside one another that live and die together: of one layer and place in flight, say. */
export interface Region {
  readonly line: string;
  readonly name: string;
  readonly offset: number;
  readonly bytes: number;
  readonly pieces: number;
  readonly spans: readonly Span[];
  readonly when: string;
  /** Names of what uses some of the same bytes at another time. */
  readonly sharesWith: readonly string[];
}

/** All pieces of a line, which lie one behind the other. */
export interface Line {
  readonly line: string;
  readonly offset: number;
  readonly bytes: number;
  readonly regions: readonly Region[];
}

const ALIGNMENT = 64;
const alignedEnd = ({ offset, bytes }: Pick<MemoryPiece, "offset" | "bytes">): number =>
  Math.ceil((offset + bytes) / ALIGNMENT) * ALIGNMENT;

function listed(phases: readonly string[]): string {
  const both = (name: string): boolean =>
    phases.includes(`forward ${name}`) && phases.includes(`backward ${name}`);
  if (both("attention") && both("MLP"))
    return phases.includes("update") ? "all passes, update" : "all passes";
  if (
    phases.includes("backward attention") &&
    phases.includes("backward MLP") &&
    !phases.some((phase) => phase.startsWith("forward"))
  )
    return phases.includes("update") ? "backward passes, update" : "backward passes";
  if (both("attention")) return "attention";
  return phases.join(", ");
}

/** First and last use of a piece, in words. */
export function whenOf(
  { lifetime }: Pick<MemoryPiece, "lifetime">,
  { chunks }: Pick<MemoryMap, "chunks">,
): string {
  if (lifetime.kind === "step") return "the whole step";
  if (lifetime.kind === "work")
    return `${listed(lifetime.phases)}${lifetime.layers ? ` of the ${lifetime.layers.length} recomputed layers` : ""}`;
  const { chunk, place, from, until } = lifetime;
  const inFlight = chunks[chunk]?.inFlight ?? 1;
  const of = inFlight === 1 ? "each micro-batch" : `micro-batches ${place}, ${place + inFlight}, …`;
  const at = ({ phase, layer }: typeof from): string =>
    phase === "embedding" || phase === "head" ? phase : `${phase} ${layer}`;
  return `${at(from)} → ${at(until)}, of ${of}`;
}

function sharing(pieces: readonly MemoryPiece[]): ReadonlyMap<MemoryPiece, readonly string[]> {
  const shared = pieces.filter(({ uses }) => uses !== undefined);
  return new Map(
    shared.map((piece) => [
      piece,
      shared
        .filter(
          (other) =>
            other !== piece &&
            other.offset < piece.offset + piece.bytes &&
            piece.offset < other.offset + other.bytes,
        )
        .map(({ name }) => name),
    ]),
  );
}

/** What pieces are told apart by: layer, place in flight and chunk, without the tensor's own name. */
function ownerOf({ name, line, lifetime, uses }: MemoryPiece): string {
  if (uses !== undefined) return `${line} ${name}`;
  const dot = name.lastIndexOf(".");
  return lifetime.kind === "kept" || dot > 0
    ? `${line} ${dot > 0 ? name.slice(0, dot) : name}`
    : `${line} ${name}`;
}

/** The lines of a map in the order of their addresses, each with its regions. */
export function linesOf(map: MemoryMap, clock: StepClock): Line[] {
  const shares = sharing(map.pieces);
  const lines: { line: string; offset: number; end: number; regions: Region[] }[] = [];
  let group: { owner: string; pieces: MemoryPiece[] } | undefined;
  const flush = (): void => {
    const [first] = group?.pieces ?? [];
    if (!group || !first) return;
    const { pieces } = group;
    const end = Math.max(...pieces.map(({ offset, bytes }) => offset + bytes));
    // Of pieces that are kept for a layer the longest kept stands for all.
    const spansOf = pieces.map((piece) => clock.spansOf(piece));
    const longest = spansOf.reduce(
      (best, spans, index) => (lengthOf(spans) > lengthOf(spansOf[best] as Span[]) ? index : best),
      0,
    );
    const region: Region = {
      line: first.line,
      name: memoryPlaceName(
        pieces.length === 1 ? first.name : first.name.slice(0, first.name.lastIndexOf(".")),
      ),
      offset: first.offset,
      bytes: end - first.offset,
      pieces: pieces.length,
      spans: spansOf[longest] as Span[],
      when: whenOf(pieces[longest] as MemoryPiece, map),
      sharesWith: pieces.flatMap((piece) => shares.get(piece) ?? []).map(memoryPlaceName),
    };
    const last = lines.at(-1);
    const aligned = Math.max(...pieces.map(alignedEnd));
    if (last?.line === first.line) {
      last.regions.push(region);
      last.end = Math.max(last.end, aligned);
    } else lines.push({ line: first.line, offset: first.offset, end: aligned, regions: [region] });
    group = undefined;
  };
  for (const piece of map.pieces) {
    const owner = ownerOf(piece);
    if (group && group.owner !== owner) flush();
    if (group) group.pieces.push(piece);
    else group = { owner, pieces: [piece] };
  }
  flush();
  return lines.map(({ line, offset, end, regions }) => ({ line, offset, bytes: end - offset, regions }));
}

const lengthOf = (spans: readonly Span[]): number => spans.reduce((sum, { from, to }) => sum + to - from, 0);
