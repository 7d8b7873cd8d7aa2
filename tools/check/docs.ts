// Docs: links that lead nowhere, code, commands and job files that cannot be right, rooms without a README, and sentences that are too long.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import GithubSlugger from "github-slugger";
import { fromMarkdown } from "mdast-util-from-markdown";
import { gfmFromMarkdown } from "mdast-util-gfm";
import { toString } from "mdast-util-to-string";
import { gfm } from "micromark-extension-gfm";
import { visit } from "unist-util-visit";
import { parseAllDocuments } from "yaml";
import { wrongCalls, wrongCallsOfBlock, wrongJob } from "./doc-code.ts";

/** Words of a sentence that is too long, and how many of a page's sentences may be. */
const LONG_WORDS = 35;
const MOST_LONG_SHARE = 0.03;
const MOST_MEAN_WORDS = 18;
/** Fewer words are a label, not a sentence. */
const LEAST_WORDS = 3;

type Root = ReturnType<typeof fromMarkdown>;

export interface Page {
  readonly path: string;
  readonly text: string;
}

export const parsePage = (text: string): Root =>
  fromMarkdown(text, { extensions: [gfm()], mdastExtensions: [gfmFromMarkdown()] });

/** Words of each sentence of a page's paragraphs. Code counts as one word, tables and headings do not count. */
export function sentenceLengths(root: Root): number[] {
  const lengths: number[] = [];
  visit(root, "paragraph", (paragraph) => {
    const plain = structuredClone(paragraph);
    visit(plain, "inlineCode", (code) => {
      code.value = "x";
    });
    for (const sentence of toString(plain).split(/(?<=[.!?])\s+/)) {
      const words = sentence.split(/\s+/).filter((word) => word !== "").length;
      if (words >= LEAST_WORDS) lengths.push(words);
    }
  });
  return lengths;
}

/** Anchors of a page's headings, as GitHub makes them. */
export function anchorsOf(root: Root): ReadonlySet<string> {
  const slugger = new GithubSlugger();
  const anchors = new Set<string>();
  visit(root, "heading", (heading) => {
    anchors.add(slugger.slug(toString(heading)));
  });
  return anchors;
}

function linksOf(root: Root): string[] {
  const links: string[] = [];
  visit(root, (node) => {
    if ("url" in node) links.push(node.url);
  });
  return links;
}

/** Links of a page to files or headings that are not there. */
export function deadLinks(
  page: Page,
  exists: (path: string) => boolean,
  read: (path: string) => string,
): string[] {
  const root = parsePage(page.text);
  return linksOf(root).flatMap((url) => {
    if (/^[a-z]+:/.test(url)) return [];
    const [file = "", anchor] = url.split("#");
    const target = file === "" ? page.path : normalize(join(dirname(page.path), decodeURI(file)));
    if (!exists(target)) return [`${page.path}: ${url} leads to no file: correct the path`];
    if (anchor === undefined || !target.endsWith(".md")) return [];
    const anchors = anchorsOf(target === page.path ? root : parsePage(read(target)));
    return anchors.has(anchor) ? [] : [`${page.path}: ${url} leads to no heading: correct the part behind #`];
  });
}

/** Commands and job files of a page that the CLI would refuse. */
export function wrongCode(page: Page): string[] {
  const faults: string[] = [];
  visit(parsePage(page.text), (node) => {
    const { start, end } = node.position ?? {};
    if (start === undefined || end === undefined) return;
    if (node.type === "inlineCode")
      faults.push(...wrongCalls(node.value).map((fault) => `${page.path}:${start.line}: ${fault}`));
    if (node.type !== "code") return;
    const { lang, value } = node;
    // A fence has a line of its own, an indented block has none.
    const first = start.line + (end.line - start.line + 1 > value.split("\n").length ? 1 : 0);
    const wrong = [...wrongCallsOfBlock(lang, value), ...(lang === "yaml" ? wrongJob(value) : [])];
    faults.push(...wrong.map(([line, fault]) => `${page.path}:${first + line}: ${fault}`));
  });
  return faults;
}

/** Code blocks of a page that name a script which package.json lacks, or that do not parse as what they say they are. */
export function wrongBlocks(page: Page, scripts: ReadonlySet<string>): string[] {
  const faults: string[] = [];
  visit(parsePage(page.text), "code", ({ lang, value, position }) => {
    const at = `${page.path}:${position?.start.line ?? 0}`;
    for (const [, script = ""] of value.matchAll(/\bnpm run (?:--silent )?([\w:-]+)/g)) {
      if (!scripts.has(script))
        faults.push(`${at}: npm run ${script} is no script: package.json has its names`);
    }
    try {
      if (lang === "json") JSON.parse(value);
    } catch (error) {
      faults.push(`${at}: this is no JSON: ${String(error)}`);
    }
    if (lang === "yaml") {
      const [error] = parseAllDocuments(value).flatMap((document) => document.errors);
      if (error !== undefined) faults.push(`${at}: this is no YAML: ${error.message}`);
    }
  });
  return faults;
}

/** What the sentences of a page break. */
export function longSentences(page: Page): string[] {
  const lengths = sentenceLengths(parsePage(page.text));
  if (lengths.length === 0) return [];
  const mean = lengths.reduce((sum, each) => sum + each, 0) / lengths.length;
  const long = lengths.filter((each) => each > LONG_WORDS).length;
  const faults: string[] = [];
  if (mean > MOST_MEAN_WORDS)
    faults.push(`${page.path}: ${mean.toFixed(1)} words a sentence: write ${MOST_MEAN_WORDS} or fewer`);
  if (long > Math.max(1, Math.floor(MOST_LONG_SHARE * lengths.length)))
    faults.push(
      `${page.path}: ${long} of ${lengths.length} sentences have over ${LONG_WORDS} words: split them`,
    );
  return faults;
}

/** All faults of pages. */
export function checkPages(
  pages: readonly Page[],
  exists: (path: string) => boolean,
  scripts: ReadonlySet<string>,
): string[] {
  const texts = new Map(pages.map(({ path, text }) => [path, text]));
  const read = (path: string): string => texts.get(path) ?? "";
  return pages.flatMap((page) => [
    ...deadLinks(page, exists, read),
    ...wrongBlocks(page, scripts),
    ...wrongCode(page),
    ...longSentences(page),
  ]);
}

/** Libraries and apps without a README. */
export const roomsWithoutReadme = (files: readonly string[]): string[] =>
  files.flatMap((file) => {
    const room = /^((?:libs|apps)\/[^/]+)\/package\.json$/.exec(file)?.[1];
    return room === undefined || files.includes(`${room}/README.md`)
      ? []
      : [
          `${room} has no README.md: say what it is for, its entry, what it may import, and where to start reading`,
        ];
  });

if (import.meta.main) {
  const files = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard"], {
    encoding: "utf8",
  })
    .split("\n")
    .filter((file) => file !== "" && existsSync(file));
  const pages = files
    .filter((file) => file.endsWith(".md"))
    .map((path) => ({ path, text: readFileSync(path, "utf8") }));
  const { scripts } = JSON.parse(readFileSync("package.json", "utf8")) as { scripts: Record<string, string> };
  const faults = [
    ...roomsWithoutReadme(files),
    ...checkPages(pages, existsSync, new Set(Object.keys(scripts))),
  ];
  for (const fault of faults) console.error(fault);
  const lengths = pages.flatMap(({ text }) => sentenceLengths(parsePage(text)));
  const mean = lengths.reduce((sum, each) => sum + each, 0) / lengths.length;
  const long = lengths.filter((each) => each > LONG_WORDS).length;
  console.log(
    `${pages.length} pages, ${lengths.length} sentences, ${mean.toFixed(1)} words each, ` +
      `${((100 * long) / lengths.length).toFixed(1)}% over ${LONG_WORDS} words; ${faults.length} faults`,
  );
  process.exit(faults.length === 0 ? 0 : 1);
}
