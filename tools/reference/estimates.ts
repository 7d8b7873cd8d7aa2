// Writes docs/reference/estimated-gpus.md from libs/cost-model/gpus/gpus.json. `--check` says whether it is as written.
import { readFileSync, writeFileSync } from "node:fs";
import {
  ASSUMED,
  ASSUMPTION_WORDS,
  FIGURE_WORDS,
  GPUS,
  SOURCES,
  usableBytes,
  type AssumptionName,
  type Figure,
  type FigureName,
} from "@internevo/cost-model";
import { formatBandwidth, formatBytes, formatFlops, formatInteger, formatSeconds } from "@internevo/domain";

const PAGE = new URL("../../docs/reference/estimated-gpus.md", import.meta.url);

/** A figure with its unit, which its name ends with. */
function valueText(name: string, value: number): string {
  if (name.endsWith("FlopsPerSecond")) return formatFlops(value);
  if (name.endsWith("BytesPerSecond")) return formatBandwidth(value);
  if (name.endsWith("Bytes")) return formatBytes(value);
  if (name.endsWith("Seconds")) return formatSeconds(value);
  if (name.endsWith("Tokens")) return `${formatInteger(value)} tokens`;
  return String(value);
}

function originText(figure: Figure): string {
  if ("assumed" in figure) return `*assumed*: ${figure.assumed}`;
  const { title, url } = SOURCES[figure.source] as (typeof SOURCES)[string];
  return `[${title}](${url})${figure.note === undefined ? "" : `; ${figure.note}`}`;
}

const row = (name: string, words: string, figure: Figure): string =>
  `| ${words} | ${valueText(name, figure.value)} | ${figure.uncertaintyPercent === 0 ? "–" : `${figure.uncertaintyPercent}%`} | ${originText(figure)} |`;
const HEAD = "| figure | value | may be off by | from |\n|---|---|---|---|";

/** The page as it has to be. */
export function estimatesPage(): string {
  const gpus = Object.entries(GPUS).map(([key, gpu]) =>
    [
      `## estimated:${key}`,
      "",
      `${gpu.name}. A job can plan with ${formatBytes(usableBytes(gpu))} of each GPU.`,
      "",
      HEAD,
      ...Object.entries(gpu.figures).map(([name, figure]) =>
        row(name, FIGURE_WORDS[name as FigureName], figure),
      ),
    ].join("\n"),
  );
  return `# Estimated GPUs

These profiles are *estimated*: nobody measured them here. \`--profile estimated:NAME\` takes one
([how](../how-to/plan-for-other-gpus.md)). \`node tools/reference/estimates.ts\` writes this page from
\`libs/cost-model/gpus/gpus.json\`.

Figures of data sheets were compared with pages that repeat them. The data sheets themselves were not opened from
the machine that this was written on. Bandwidths are of one direction.

## Formula

- A product takes \`kernel + max(flops / (share × peak), bytes / (share × memory bandwidth))\`.
- Attention takes the same, with its own shares. Its flops count \`1 + half length / length\` times.
- Other modules take \`kernel + bytes / (share × memory bandwidth)\`.
- A collective takes \`latency + max(bytes inside a node / links, bytes between nodes / network)\`. Latency grows by a
  quarter for each doubling of ranks or nodes, and an all-reduce has it twice.
- An all-gather or a reduce-scatter of v bytes over n ranks on m nodes sends \`v (n − 1) / n\` inside a node. Between nodes
  each GPU sends its part of \`v (m − 1) / m\`. An all-reduce sends twice that.
- In an all-to-all each rank sends \`v / n\` to every other rank.

Where each pair of GPUs has links of its own, a smaller group has fewer of them.

The 10th percentile of each time takes all figures at the good end of what they may be off by. The 90th takes them at the
bad end. Ranges of step times follow from both. Work that no formula has, such as congestion, is in no range.

## All GPUs

${HEAD}
${Object.entries(ASSUMED)
  .map(([name, figure]) => row(name, ASSUMPTION_WORDS[name as AssumptionName], figure))
  .join("\n")}

${gpus.join("\n\n")}
`;
}

if (import.meta.main) {
  const page = estimatesPage();
  if (!process.argv.includes("--check")) writeFileSync(PAGE, page);
  else if (readFileSync(PAGE, "utf8") !== page) {
    console.error(
      "docs/reference/estimated-gpus.md differs from gpus.json: node tools/reference/estimates.ts",
    );
    process.exitCode = 1;
  }
}
