import {
  formatBytes,
  formatCounted,
  formatFigure,
  formatPercent,
  formatSeconds,
  shortened,
} from "@internevo/domain";
import type { Change, ProfileDifference, StatedChange } from "@internevo/profiles";
import { table, type Colors, type Column } from "./output.ts";

/** "3.1% slower"; nothing worth a word below a thousandth. */
function ratioText(ratio: number): string {
  if (Math.abs(ratio - 1) < 5e-4) return "the same";
  if (ratio >= 2) return `${ratio.toFixed(1)}× slower`;
  if (ratio > 1) return `${formatPercent(ratio - 1)} slower`;
  return ratio <= 0.5 ? `${(1 / ratio).toFixed(1)}× faster` : `${formatPercent(1 - ratio)} faster`;
}

/** Characters of a name in a table; JSON has the whole. */
const MOST_OF_NAME = 56;

const sizes = (at: string): string =>
  at.replace(/^(\d+) bytes/, (_, bytes: string) => formatBytes(Number(bytes)));

function changes(
  title: string,
  list: readonly Change[],
  colors: Colors,
  format: (value: number) => string = formatSeconds,
): string {
  const columns: Column<Change>[] = [
    { title, most: MOST_OF_NAME, value: ({ name }) => name },
    { title: "POINTS", align: "right", spare: 1, value: ({ points }) => String(points) },
    { title: "IN THE MEAN", align: "right", value: ({ ratio }) => ratioText(ratio) },
    { title: "MOST", align: "right", value: ({ furthest }) => ratioText(furthest.ratio) },
    {
      title: "AT",
      below: true,
      value: ({ furthest }) =>
        `${shortened(sizes(furthest.at), MOST_OF_NAME)}: ` +
        `${format(furthest.beforeSeconds)} → ${format(furthest.afterSeconds)}`,
    },
    {
      title: "BEYOND SPREAD",
      align: "right",
      value: ({ beyondSpread, withSpread }) =>
        withSpread === 0 ? "unknown" : `${beyondSpread} of ${withSpread}`,
    },
  ];
  const differing = list.filter(({ furthest }) => furthest.ratio !== 1);
  const alike = list.length - differing.length;
  const rows = table(
    columns,
    differing.sort((a, b) => Math.abs(Math.log(b.ratio)) - Math.abs(Math.log(a.ratio))),
    colors,
  );
  if (alike === 0) return rows;
  return differing.length === 0
    ? `${colors.bold(title)}\nthe same in both: all ${alike}`
    : `${rows}\nthe same in both: ${alike} more`;
}

function statedTable(list: readonly StatedChange[], colors: Colors): string {
  const text = (value: StatedChange["before"]): string =>
    typeof value === "number" ? formatFigure(value) : (value ?? "–");
  return table<StatedChange>(
    [
      { title: "STATED", value: ({ field }) => field },
      { title: "FIRST", most: MOST_OF_NAME, value: ({ before }) => text(before) },
      { title: "SECOND", most: MOST_OF_NAME, value: ({ after }) => text(after) },
    ],
    list,
    colors,
  );
}

const MOST_NAMES = 8;
function only(which: string, names: readonly string[]): string | undefined {
  if (names.length === 0) return undefined;
  return `only in the ${which} (${names.length}): ${names
    .slice(0, MOST_NAMES)
    .map((name) => shortened(name, MOST_OF_NAME))
    .join(
      "; ",
    )}${names.length > MOST_NAMES ? `; and ${names.length - MOST_NAMES} more, all of them with --json` : ""}`;
}

/** What was compared of two profiles between which nothing differs; undefined where something does. */
function sameText({
  stated,
  collectives,
  modules,
  overlaps,
  onlyInFirst,
  onlyInSecond,
}: ProfileDifference): string | undefined {
  const measured = [...collectives, ...modules, ...overlaps];
  if (
    stated.length + onlyInFirst.length + onlyInSecond.length > 0 ||
    measured.length === 0 ||
    measured.some(({ furthest }) => furthest.ratio !== 1)
  )
    return undefined;
  return `they are the same, in all that was compared: ${formatCounted(collectives.length, "curve")} of collectives, ${formatCounted(modules.length, "kind")} of modules, ${formatCounted(overlaps.length, "slow-down")}, and what they state`;
}

/** Two profiles side by side, the largest differences first. */
export function differenceText(
  difference: ProfileDifference,
  names: readonly [string, string],
  colors: Colors,
): string {
  const { stated, collectives, modules, overlaps, onlyInFirst, onlyInSecond } = difference;
  const title = `${colors.bold(names[0])} beside ${colors.bold(names[1])}`;
  const same = sameText(difference);
  if (same !== undefined) return `${title}\n\n${same}`;
  const parts = [
    title,
    stated.length > 0 ? statedTable(stated, colors) : undefined,
    collectives.length > 0 ? changes("COLLECTIVES", collectives, colors) : undefined,
    modules.length > 0 ? changes("MODULES", modules, colors) : undefined,
    overlaps.length > 0
      ? changes("SLOW-DOWN WHEN TOGETHER", overlaps, colors, (factor) => factor.toFixed(2))
      : undefined,
    only("first", onlyInFirst),
    only("second", onlyInSecond),
    collectives.length + modules.length + overlaps.length === 0 ? "nothing was measured by both" : undefined,
  ];
  return parts.filter((part) => part !== undefined).join("\n\n");
}
