import { table, type Colors, type Column } from "../output.ts";
import { memoryLineName } from "@internevo/domain";
import { mebibytes } from "./picture.ts";
import type { Line, Region } from "./regions.ts";

/** Regions of a line that a table lists; more are put together by kind. */
const MOST_REGIONS = 12;

interface Row {
  readonly name: string;
  readonly offset: number;
  readonly bytes: number;
  readonly when: string;
  readonly sharesWith: string;
}

/** Layers and places in flight by a sign, so that regions that are alike have one name. */
const kindOfRegion = (name: string): string => name.replace(/\d+/g, "*");

function rowOf({ name, offset, bytes, when, sharesWith }: Region): Row {
  return { name: `  ${name}`, offset, bytes, when, sharesWith: sharesWith.join(", ") };
}

/** Regions of one kind, which a large model has by the thousand, as one row. */
function together(regions: readonly Region[]): Row[] {
  const kinds = Map.groupBy(regions, ({ name }) => kindOfRegion(name));
  return [...kinds.values()].map((some) => {
    const [first, last] = [some[0] as Region, some.at(-1) as Region];
    if (some.length === 1) return rowOf(first);
    return {
      name: `  ${first.name} … ${last.name} (${some.length})`,
      offset: first.offset,
      bytes: some.reduce((sum, { bytes }) => sum + bytes, 0),
      when: first.when
        .replace(/ \d+(?= →|,)/g, " of its layer")
        .replace(/micro-batches .*$/, "its micro-batches"),
      sharesWith: "",
    };
  });
}

/** Lines in the order of their addresses, each with what it consists of. `all`: every region has a row. */
export function memoryTable(
  lines: readonly Line[],
  { all, colors }: { readonly all: boolean; readonly colors: Colors },
): string {
  const rows = lines.flatMap(({ line, offset, bytes, regions }): Row[] => {
    const [only] = regions;
    if (regions.length === 1 && only) return [{ ...rowOf(only), name: colors.bold(memoryLineName(line)) }];
    const below = all || regions.length <= MOST_REGIONS ? regions.map(rowOf) : together(regions);
    return [{ name: colors.bold(memoryLineName(line)), offset, bytes, when: "", sharesWith: "" }, ...below];
  });
  const columns: Column<Row>[] = [
    { title: "MEMORY", value: ({ name }) => name },
    { title: "OFFSET", align: "right", value: ({ offset }) => mebibytes(offset) },
    { title: "SIZE", align: "right", value: ({ bytes }) => mebibytes(bytes) },
    { title: "IN USE", value: ({ when }) => when },
    { title: "SHARES BYTES WITH", value: ({ sharesWith }) => sharesWith },
  ];
  return table(
    rows.some(({ sharesWith }) => sharesWith !== "") ? columns : columns.slice(0, -1),
    rows,
    colors,
  );
}
