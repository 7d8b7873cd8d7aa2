import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { availableParallelism, cpus, loadavg } from "node:os";
import { join } from "node:path";

/** Where and when figures were measured: part of every result. */
export interface Circumstances {
  readonly date: string;
  readonly command: string;
  readonly processor: string;
  readonly cores: number;
  readonly node: string;
  readonly kernel: string;
  /** One minute's mean before the first and after the last measurement. */
  readonly loadBefore: number;
  readonly loadAfter: number;
  readonly seconds: number;
  /**
   * Of the processor time that was asked for, what the machine below gave to others, as a fraction; undefined
   * where the kernel does not say.
   */
  readonly stolen?: number | undefined;
}

interface ProcessorTime {
  readonly given: number;
  readonly stolen: number;
}

/** The first line of Linux' /proc/stat, in its ticks: all cores since the start. */
export function processorTimeOf(stat: string): ProcessorTime | undefined {
  const [user = 0, nice = 0, system = 0, , , interrupts = 0, soft = 0, stolen] = (
    /^cpu +([\d ]+)/.exec(stat)?.[1] ?? ""
  )
    .split(" ")
    .map(Number);
  return stolen === undefined ? undefined : { given: user + nice + system + interrupts + soft, stolen };
}

/**
 * Begins to watch what the machine below takes; the returned function says {@link Circumstances.stolen} since
 * then.
 */
export function observeStolen(): () => number | undefined {
  const now = (): ProcessorTime | undefined =>
    existsSync("/proc/stat") ? processorTimeOf(readFileSync("/proc/stat", "utf8")) : undefined;
  const before = now();
  return () => {
    const after = now();
    if (!before || !after) return undefined;
    const [given, stolen] = [after.given - before.given, after.stolen - before.stolen];
    return given + stolen === 0 ? 0 : stolen / (given + stolen);
  };
}

/** Starts the clock; the returned function says how it was. */
export function observeCircumstances(command: string): () => Circumstances {
  const loadBefore = loadavg()[0] as number;
  const start = performance.now();
  const date = new Date().toISOString().slice(0, 10);
  const stolen = observeStolen();
  return () => ({
    date,
    command,
    processor: cpus()[0]?.model ?? "unknown",
    cores: availableParallelism(),
    node: process.version,
    kernel: execFileSync("uname", ["-sr"], { encoding: "utf8" }).trim(),
    loadBefore,
    loadAfter: loadavg()[0] as number,
    seconds: (performance.now() - start) / 1000,
    stolen: stolen(),
  });
}

/** A section of a page: the command that writes it, and when, where and how quietly it ran. */
export const circumstancesText = (c: Circumstances, heading = "How it was measured"): string =>
  [
    `## ${heading}`,
    [
      `- Command: \`${c.command.replaceAll(" and npm ", "\` and \`npm ")}\``,
      `- Date: ${c.date}. It took ${(c.seconds / 60).toFixed(1)} minutes.`,
      `- Machine: ${c.cores} cores of a virtual ${c.processor}, ${c.kernel}, Node ${c.node}`,
      `- Noise: the load was ${c.loadBefore.toFixed(1)} before and ${c.loadAfter.toFixed(1)} after.${c.stolen === undefined ? "" : ` Other machines on the same processor took ${(100 * c.stolen).toFixed(0)}% of the processor time that was asked for.`}`,
    ].join("\n"),
  ].join("\n\n");

const BEGIN = "<!-- figures: written by the command below, do not edit -->";
const END = "<!-- end of figures -->";

/** A Markdown table; numbers to the right. */
export function table(head: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  const rule = head.map((_, column) =>
    rows.length > 0 && rows.every((row) => /^[-+~<≥]?[\d.,]+[ %×]*[a-zA-Z/%]*$/.test(String(row[column])))
      ? "---:"
      : "---",
  );
  return [head, rule, ...rows]
    .map((cells) => `| ${cells.map((cell) => String(cell).replaceAll("|", "\\|")).join(" | ")} |`)
    .join("\n");
}

/**
 * Replaces the figures of a page, between its two marks; what people wrote around them stays. A page that is
 * missing begins with a title.
 */
export async function writePage(options: {
  readonly directory: string;
  readonly name: string;
  readonly title: string;
  readonly body: string;
  readonly images: Readonly<Record<string, string>>;
}): Promise<void> {
  const { directory, name, title, body, images } = options;
  const path = join(directory, `${name}.md`);
  await mkdir(join(directory, "images"), { recursive: true });
  for (const [file, svg] of Object.entries(images)) await writeFile(join(directory, "images", file), svg);
  const page = await readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return `# ${title}\n\n${BEGIN}\n${END}\n`;
    throw error;
  });
  const begin = page.indexOf(BEGIN);
  const end = page.indexOf(END);
  if (begin < 0 || end < begin)
    throw new Error(`${path} lacks the lines "${BEGIN}" and "${END}", between which figures are written`);
  await writeFile(path, `${page.slice(0, begin)}${BEGIN}\n\n${body.trim()}\n\n${page.slice(end)}`);
}
