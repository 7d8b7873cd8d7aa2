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
