import { spawnSync } from "node:child_process";
import fc from "fast-check";
import { parse } from "smol-toml";
import { describe, expect, it } from "vitest";

/** Reads each text with Python's own reader, as torchtitan does; null where it refuses it. */
const RUNNER = `
import json, sys, tomllib
def read(text):
    try: return json.loads(json.dumps(tomllib.loads(text)))
    except (ValueError, TypeError): return None
json.dump([read(text) for text in json.load(sys.stdin)], sys.stdout)
`;

const key = fc.constantFrom("a", "b", "c.d", '"a"', "'b'", "a.b", '"c.d"');
const value = fc.constantFrom(
  "1",
  "+2",
  "-3",
  "1_000",
  "0x1F",
  "0o17",
  "0b11",
  "1.5",
  "6e3",
  "-0.25",
  "true",
  "false",
  '"t"',
  "'u'",
  '"\\u0041\\n"',
  '"""\nx\\\n  y"""',
  "'''z'''",
  "[1, 2,]",
  '[1, ["a"]]',
  "{a = 1, b.c = 2}",
  "9007199254740993",
  "1__0",
  "010",
  "tru",
);
const line = fc.oneof(
  { weight: 6, arbitrary: fc.tuple(key, value).map(([name, of]) => `${name} = ${of}`) },
  { weight: 2, arbitrary: key.map((name) => `[${name}]`) },
  { weight: 1, arbitrary: key.map((name) => `[[${name}]]`) },
  { weight: 1, arbitrary: fc.constantFrom("# c", "", "a = 1 # c", "a", "= 1") },
);

describe("a TOML text", () => {
  it("has the values that Python reads from it, or is refused; and is refused where a key is given twice", () => {
    const texts = [
      ...fc.sample(
        fc.array(line, { maxLength: 5 }).map((lines) => lines.join("\n")),
        { seed: 3, numRuns: 3000 },
      ),
      "a = 1\na = 2",
      "[a]\n[a]",
      '[a]\nb = 1\n"b" = 2',
    ];
    const { stdout, stderr, status } = spawnSync("python3", ["-I", "-c", RUNNER], {
      input: JSON.stringify(texts),
      encoding: "utf8",
      maxBuffer: 2 ** 26,
    });
    expect([status, stderr]).toEqual([0, ""]);
    const reals = JSON.parse(stdout) as unknown[];
    let compared = 0;
    for (const [at, text] of texts.entries()) {
      let read: unknown;
      try {
        read = parse(text);
      } catch {
        continue;
      }
      compared += 1;
      expect({ text, read: JSON.parse(JSON.stringify(read)) as unknown }).toEqual({ text, read: reals[at] });
    }
    expect(compared).toBeGreaterThan(300);
  });
});
