import { describe, expect, it } from "vitest";
import {
  anchorsOf,
  checkPages,
  longSentences,
  parsePage,
  roomsWithoutReadme,
  sentenceLengths,
} from "./docs.ts";

const scripts = new Set(["test"]);
const check = (text: string, files: readonly string[] = []) =>
  checkPages([{ path: "docs/page.md", text }], (path) => files.includes(path), scripts);

describe("the check of docs", () => {
  it("finds links to files and headings that are not there", () => {
    expect(check("See [this](other.md).")).toEqual([expect.stringContaining("other.md leads to no file")]);
    expect(check("See [this](other.md).", ["docs/other.md"])).toEqual([]);
    expect(check("# One word\n\nSee [this](#one-word) and [that](#two-words).", ["docs/page.md"])).toEqual([
      expect.stringContaining("#two-words leads to no heading"),
    ]);
    expect(check("See [this](https://example.org/nothing).")).toEqual([]);
  });

  it("makes anchors as GitHub does, repeated ones too", () => {
    expect([...anchorsOf(parsePage("# Read `the` table!\n\n# Twice\n\n# Twice\n"))]).toEqual([
      "read-the-table",
      "twice",
      "twice-1",
    ]);
  });

  it("finds code that cannot be right", () => {
    expect(check("```console\n$ npm run tset\n```")).toEqual([
      expect.stringContaining("npm run tset is no script"),
    ]);
    expect(check("```console\n$ npm run test -- --all\n```")).toEqual([]);
    expect(check('```json\n{"a": }\n```')).toEqual([
      expect.stringContaining("docs/page.md:1: this is no JSON"),
    ]);
    expect(check("```yaml\na: [\n```")).toEqual([expect.stringContaining("this is no YAML")]);
  });

  it("holds commands of internevo against the CLI's own", () => {
    expect(check("```console\n$ npx internevo plan job.yaml --top 3 | head\n```")).toEqual([]);
    expect(check("```console\n$ npm run up\n```\n\n    internevo sumbit job.yaml")).toEqual([
      expect.stringContaining("docs/page.md:1: npm run up is no script"),
      "docs/page.md:5: internevo sumbit is no command: internevo --help has their names",
    ]);
    expect(check("```console\n$ cd /tmp\n$ FOO=1 npx internevo --json plan job.yaml --tops 3\n```")).toEqual([
      "docs/page.md:3: internevo plan has no option --tops: internevo plan --help has its options",
    ]);
    expect(check("```sh\ninternevo replan add job.yaml \\\n  --corn '0 3 * * *' # at night\n```")).toEqual([
      "docs/page.md:2: internevo replan add has no option --corn: internevo replan add --help has its options",
    ]);
    expect(check("```\ncat x | internevo frobnicate -\n```")).toHaveLength(1);
  });

  it("takes values, alternatives and output for no commands or options", () => {
    expect(
      check('```sh\ninternevo export job-3f --plan "b1 --n4" --framework=megatron [--out DIR]\n```'),
    ).toEqual([]);
    expect(check("```sh\ninternevo token create|list|revoke\ninternevo profile --help\n```")).toEqual([]);
    expect(check("```console\n$ ls\ninternevo lists nothing\n```")).toEqual([]);
    expect(check("```text\ninternevo lists nothing\n```")).toEqual([]);
  });

  it("holds commands inside sentences against the CLI too", () => {
    expect(check("Call `internevo plans job.yaml` first.")).toEqual([
      "docs/page.md:1: internevo plans is no command: internevo --help has their names",
    ]);
  });

  it("holds whole job files against the job's schema", () => {
    const job = `name: a
model: llama-7b
sequenceLengthTokens: 4096
globalBatchTokens: 32768
cluster: { name: c, nodes: 1, gpusPerNode: 2, memoryPerGpu: 80GB }
`;
    const block = (text: string) => check(`A job:\n\n\`\`\`yaml\n${text}\`\`\`\n`);
    expect(block(job)).toEqual([]);
    expect(block(job.replace("globalBatchTokens", "globalBatchToken"))).toContainEqual(
      expect.stringMatching(/^docs\/page.md:7: no job file: globalBatchToken /),
    );
    expect(block(job.replace("gpusPerNode: 2", "gpusPerNode: none"))).toEqual([
      expect.stringMatching(/^docs\/page.md:8: no job file: cluster.gpusPerNode /),
    ]);
    expect(block("cluster: { name: a part of a job }\n")).toEqual([]);
  });

  it("counts the words of sentences, without code, tables and headings", () => {
    const text =
      "# A heading of many words\n\nOne two `three four five`. Six seven [eight](x.md) nine!\n\n| a b c d |\n|---|\n| a b c d |\n";
    expect(sentenceLengths(parsePage(text))).toEqual([3, 4]);
  });

  it("refuses a page of long sentences", () => {
    const long = `${"word ".repeat(36).trim()}.`;
    expect(longSentences({ path: "p.md", text: long })).toEqual([
      "p.md: 36.0 words a sentence: write 18 or fewer",
    ]);
    expect(longSentences({ path: "p.md", text: `${long} ${long} Three words here.` })).toEqual([
      expect.stringContaining("words a sentence"),
      "p.md: 2 of 3 sentences have over 35 words: split them",
    ]);
    expect(longSentences({ path: "p.md", text: "Three words here. And four words here." })).toEqual([]);
  });

  it("asks every library and app for a README", () => {
    expect(
      roomsWithoutReadme([
        "libs/a/package.json",
        "libs/b/package.json",
        "libs/b/README.md",
        "tools/c/package.json",
      ]),
    ).toEqual([expect.stringContaining("libs/a has no README.md")]);
  });
});
