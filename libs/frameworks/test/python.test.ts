import { spawnSync } from "node:child_process";
import { ProblemError } from "@internevo/domain";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { NeedsRun, pythonModule, type PythonValue } from "../src/python.ts";

const NAMES = ["a", "b", "c", "m", "n", "l", "dict", "int"] as const;

/**
 * Runs each module in the real Python, up to the first statement that fails, and prints that much of it with
 * its variables as JSON.
 */
const RUNNER = `
import ast, json, signal, sys, warnings
warnings.simplefilter("ignore")
class Late(BaseException): pass
def late(*_): raise Late()
signal.signal(signal.SIGALRM, late)
def plain(value, depth=0):
    if depth > 20: return {"other": "deep"}
    if value is None or isinstance(value, (bool, str)): return {"is": value}
    if isinstance(value, (int, float)): return {"number": repr(float(value)) if abs(value) < 1e300 else "large"}
    if isinstance(value, (list, tuple)): return {"list": [plain(each, depth + 1) for each in value]}
    if type(value) is dict and all(isinstance(key, str) for key in value): return {"record": {key: plain(each, depth + 1) for key, each in value.items()}}
    return {"other": type(value).__name__}
def run(statements):
    space = {"__name__": "configuration"}
    at = 0
    try:
        signal.setitimer(signal.ITIMER_REAL, 2)
        for at, statement in enumerate(statements):
            exec(compile(ast.Module([statement], []), "configuration", "exec"), space)
        return None, space
    except (Exception, SystemExit, Late): return at, space
    finally: signal.setitimer(signal.ITIMER_REAL, 0)
results = []
answer, sys.stdout = sys.stdout, open("/dev/null", "w")
for source in json.load(sys.stdin):
    try: statements = ast.parse(source).body
    except (SyntaxError, ValueError): continue
    failed, space = run(statements)
    if failed is not None:
        first = statements[failed]
        line = min([first.lineno] + [each.lineno for each in getattr(first, "decorator_list", [])])
        source = "\\n".join(source.split("\\n")[:line - 1]) + "\\n"
        failed, space = run(ast.parse(source).body)
    if failed is None: results.append({"source": source, "values": {name: plain(space[name]) for name in ${JSON.stringify(NAMES)} if name in space}})
json.dump(results, answer)
`;

type Real = {
  readonly is?: unknown;
  readonly number?: string;
  readonly list?: Real[];
  readonly record?: Record<string, Real>;
  readonly other?: string;
};

function inPython(
  modules: readonly string[],
): { readonly source: string; readonly values: Record<string, Real> }[] {
  const { stdout, stderr, status } = spawnSync("python3", ["-I", "-c", RUNNER], {
    input: JSON.stringify(modules),
    encoding: "utf8",
    maxBuffer: 2 ** 28,
  });
  if (status !== 0) throw new Error(`python3: ${stderr}`);
  return JSON.parse(stdout) as ReturnType<typeof inPython>;
}

/** How the two differ; what we do not know cannot differ. */
function difference(ours: PythonValue, real: Real | undefined, path: string): string | null {
  if (ours instanceof NeedsRun) return null;
  if (real === undefined) return `${path} has no value in Python, here ${JSON.stringify(ours)}`;
  const other = `${path} is ${JSON.stringify(real)} in Python, here ${JSON.stringify(ours)}`;
  if (Array.isArray(ours))
    return real.list?.length === ours.length
      ? (ours
          .map((each, at) => difference(each, real.list?.[at], `${path}[${at}]`))
          .find((each) => each !== null) ?? null)
      : other;
  if (typeof ours === "object" && ours !== null) {
    const { record } = real;
    if (record === undefined || Object.keys(record).sort().join() !== Object.keys(ours).sort().join())
      return other;
    return (
      Object.entries(ours)
        .map(([key, each]) => difference(each, record[key], `${path}.${key}`))
        .find((each) => each !== null) ?? null
    );
  }
  if (typeof ours === "number")
    return real.number !== undefined && Math.abs(Number(real.number) - ours) <= 1e-15 * Math.abs(ours)
      ? null
      : other;
  return real.is === ours && "is" in real ? null : other;
}

/** What we know of a module; that we cannot read it is a refusal too. */
function known(source: string): ReturnType<typeof pythonModule> | null {
  try {
    return pythonModule(source, NAMES);
  } catch (error) {
    if (error instanceof ProblemError) return null;
    throw new Error(source, { cause: error });
  }
}

function differences(ours: ReturnType<typeof pythonModule>, real: Record<string, Real>): string[] {
  return NAMES.flatMap((name) => {
    const value = ours[name];
    if (value === undefined)
      return real[name] === undefined
        ? []
        : [`${name} is ${JSON.stringify(real[name])} in Python, and missing here`];
    return difference(value, real[name], name) ?? [];
  });
}

const variable = fc.constantFrom("a", "b", "c", "m", "n", "l");
const key = fc.constantFrom("x", "y", "z");
const expression = fc.letrec<Record<"any" | "atom" | "container" | "test", string>>((tie) => ({
  atom: fc.oneof(
    {
      weight: 4,
      arbitrary: fc.constantFrom(
        "0",
        "1",
        "2",
        "3",
        "-5",
        "24",
        "7",
        "4096",
        "2.5",
        "-0.5",
        "8 / 3",
        "0x10",
        "1_000",
        "1e3",
        "True",
        "False",
        "None",
        "2**53",
        '"t"',
        "'u'",
        'r"\\n"',
        '"\\n"',
        '"\\x41"',
        '"a" "b"',
        'f"{1}"',
        'b"x"',
        "1 < 2 < 3",
        "3 > 2 > 1",
      ),
    },
    { weight: 4, arbitrary: variable },
    { weight: 2, arbitrary: fc.tuple(variable, key).map(([of, at]) => `${of}["${at}"]`) },
    {
      weight: 1,
      arbitrary: fc.tuple(variable, fc.integer({ min: -2, max: 2 })).map(([of, at]) => `${of}[${at}]`),
    },
  ),
  container: fc.oneof(
    fc
      .array(fc.tuple(key, tie("any")), { maxLength: 3 })
      .map(
        (entries) => `dict(${[...new Map(entries)].map(([name, value]) => `${name}=${value}`).join(", ")})`,
      ),
    fc
      .array(fc.tuple(key, tie("any")), { maxLength: 3 })
      .map((entries) => `{${entries.map(([name, value]) => `"${name}": ${value}`).join(", ")}}`),
    fc.array(tie("any"), { maxLength: 3 }).map((values) => `[${values.join(", ")}]`),
    fc.array(tie("any"), { minLength: 1, maxLength: 3 }).map((values) => `(${values.join(", ")},)`),
    fc.tuple(variable, key, tie("any")).map(([of, name, value]) => `dict(${of}, ${name}=${value})`),
    fc.tuple(variable, key, tie("any")).map(([of, name, value]) => `{**${of}, "${name}": ${value}}`),
    fc.tuple(variable, key, tie("any")).map(([of, name, value]) => `dict(${name}=${value}, **${of})`),
    tie("any").map((value) => `[${value} for a in (1, 2)]`),
    variable.map((of) => `[*${of}, 1]`),
    variable.map((of) => `${of}.copy()`),
    variable.map((of) => `list(${of})`),
  ),
  test: fc.oneof(
    fc.constantFrom(
      "True",
      "False",
      "a",
      "m",
      "l",
      "not a",
      'm.get("x")',
      "1 == True",
      "len(l) > 1",
      '"x" in m',
      "a is None",
      "a is not None",
      "os.sep == '/'",
    ),
    fc
      .tuple(tie("atom"), fc.constantFrom("<", "<=", ">", ">=", "==", "!="), tie("atom"))
      .map(([left, sign, right]) => `${left} ${sign} ${right}`),
  ),
  any: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    { weight: 6, arbitrary: tie("atom") },
    {
      weight: 5,
      arbitrary: fc
        .tuple(
          tie("any"),
          fc.constantFrom("+", "-", "*", "/", "//", "%", "**", "and", "or", "|", "&", "<<", "==", "<"),
          tie("any"),
        )
        .map(([left, sign, right]) => `(${left} ${sign} ${right})`),
    },
    {
      weight: 2,
      arbitrary: fc
        .tuple(
          tie("atom"),
          fc.constantFrom("+", "-", "*", "//", "%", "**", "and", "or", "<", "=="),
          tie("atom"),
          fc.constantFrom("+", "-", "*", "//", "%", "**", "and", "or", "<", "=="),
          tie("atom"),
        )
        .map((parts) => parts.join(" ")),
    },
    {
      weight: 1,
      arbitrary: fc
        .tuple(fc.constantFrom("-", "+", "not ", "~"), tie("any"))
        .map(([sign, value]) => `(${sign}${value})`),
    },
    {
      weight: 1,
      arbitrary: fc
        .tuple(tie("any"), tie("test"), tie("any"))
        .map(([yes, test, no]) => `(${yes} if ${test} else ${no})`),
    },
    { weight: 1, arbitrary: fc.tuple(variable, tie("any")).map(([name, value]) => `(${name} := ${value})`) },
    {
      weight: 2,
      arbitrary: fc
        .tuple(
          fc.constantFrom("int", "float", "min", "max", "abs", "len", "round", "bool", "str"),
          fc.array(tie("any"), { maxLength: 2 }),
        )
        .map(([name, values]) => `${name}(${values.join(", ")})`),
    },
    { weight: 1, arbitrary: fc.tuple(variable, key).map(([of, name]) => `${of}.get("${name}", 3)`) },
    {
      weight: 1,
      arbitrary: fc
        .tuple(fc.constantFrom("print", "min", "f", "len", "dict"), variable, tie("any"), tie("any"))
        .map(([of, name, left, right]) => `${of}(${left}, ${name} := ${right})`),
    },
    { weight: 1, arbitrary: fc.tuple(variable, key).map(([of, name]) => `${of}.pop("${name}", 3)`) },
    {
      weight: 1,
      arbitrary: fc.constantFrom(
        "(lambda: m.update(x=9))()",
        "exec('a = 9')",
        "globals().update(b=9)",
        "setattr(sys.modules.get('x', m), 'y', 1)",
        "f()",
        "g(m)",
        "[f][0]()",
        "(lambda q: q.clear())(l)",
        "id(m)",
        "sorted((3, 1))",
      ),
    },
    { weight: 3, arbitrary: tie("container") },
  ),
}));

const indented = (block: string): string =>
  block
    .split("\n")
    .map((line) => `    ${line}`)
    .join("\n");
const { statement } = fc.letrec<Record<"statement" | "block", string>>((tie) => ({
  block: fc.array(tie("statement"), { minLength: 1, maxLength: 3 }).map((lines) => lines.join("\n")),
  statement: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    { weight: 8, arbitrary: fc.tuple(variable, expression.any).map(([name, value]) => `${name} = ${value}`) },
    {
      weight: 3,
      arbitrary: fc.tuple(variable, expression.container).map(([name, value]) => `${name} = ${value}`),
    },
    {
      weight: 3,
      arbitrary: fc
        .tuple(variable, key, expression.any)
        .map(([of, at, value]) => `${of}["${at}"] = ${value}`),
    },
    {
      weight: 2,
      arbitrary: fc
        .tuple(variable, fc.integer({ min: -2, max: 2 }), expression.any)
        .map(([of, at, value]) => `${of}[${at}] = ${value}`),
    },
    {
      weight: 3,
      arbitrary: fc
        .tuple(variable, fc.constantFrom("+=", "-=", "*=", "//=", "%=", "/=", "**=", "|="), expression.any)
        .map(([name, sign, value]) => `${name} ${sign} ${value}`),
    },
    {
      weight: 2,
      arbitrary: fc
        .tuple(variable, key, fc.constantFrom("+=", "*="), expression.any)
        .map(([of, at, sign, value]) => `${of}["${at}"] ${sign} ${value}`),
    },
    {
      weight: 2,
      arbitrary: fc
        .tuple(variable, variable, expression.any, expression.any)
        .map(([x, y, left, right]) => `${x}, ${y} = ${left}, ${right}`),
    },
    {
      weight: 1,
      arbitrary: fc
        .tuple(variable, variable, fc.oneof(variable, expression.container))
        .map(([x, y, value]) => `*${x}, ${y} = ${value}`),
    },
    {
      weight: 1,
      arbitrary: fc
        .tuple(variable, variable, variable)
        .map(([x, y, value]) => `(${x}, [${y}]) = ${value}, [1]`),
    },
    {
      weight: 2,
      arbitrary: fc
        .tuple(variable, variable, expression.any)
        .map(([x, y, value]) => `${x} = ${y} = ${value}`),
    },
    {
      weight: 1,
      arbitrary: fc.tuple(variable, expression.any).map(([name, value]) => `${name}: int = ${value}`),
    },
    {
      weight: 1,
      arbitrary: fc
        .tuple(variable, expression.any, variable, expression.any)
        .map(([x, left, y, right]) => `${x} = ${left}; ${y} = ${right}`),
    },
    {
      weight: 2,
      arbitrary: fc
        .tuple(
          variable,
          fc.constantFrom(
            ".update(x=5)",
            '.pop("x", 0)',
            ".clear()",
            ".append(4)",
            '.setdefault("y", 6)',
            ".sort()",
            ".__setitem__('x', 3)",
          ),
        )
        .map(([of, call]) => `${of}${call}`),
    },
    { weight: 1, arbitrary: expression.any },
    { weight: 1, arbitrary: variable.map((name) => `del ${name}`) },
    { weight: 1, arbitrary: fc.tuple(variable, key).map(([of, at]) => `del ${of}["${at}"]`) },
    {
      weight: 3,
      arbitrary: fc
        .tuple(expression.test, tie("block"), tie("block"))
        .map(([test, yes, no]) => `if ${test}:\n${indented(yes)}\nelse:\n${indented(no)}`),
    },
    {
      weight: 1,
      arbitrary: fc
        .tuple(expression.test, tie("block"), expression.test, tie("block"))
        .map(
          ([test, yes, second, other]) =>
            `if ${test}:\n${indented(yes)}\nelif ${second}:\n${indented(other)}`,
        ),
    },
    {
      weight: 1,
      arbitrary: fc
        .tuple(variable, tie("block"))
        .map(([name, block]) => `for ${name} in (1, 2):\n${indented(block)}`),
    },
    { weight: 1, arbitrary: tie("block").map((block) => `while True:\n${indented(block)}\n    break`) },
    {
      weight: 1,
      arbitrary: tie("block").map((block) => `try:\n${indented(block)}\nexcept Exception as b:\n    c = 3`),
    },
    { weight: 1, arbitrary: tie("block").map((block) => `with open("/dev/null") as c:\n${indented(block)}`) },
    { weight: 1, arbitrary: tie("block").map((block) => `def f():\n    global a, b\n${indented(block)}`) },
    { weight: 1, arbitrary: tie("block").map((block) => `class C:\n${indented(block)}`) },
    {
      weight: 1,
      arbitrary: fc
        .tuple(variable, variable)
        .map(([x, y]) => `match ${x}:\n    case {"x": ${y}}: pass\n    case ${y}: pass`),
    },
    {
      weight: 1,
      arbitrary: fc.constantFrom(
        "def g(q):\n    q['x'] = 8",
        "f()",
        "g(m)",
        "@g\ndef f(): pass",
        "@(lambda q: m.update(x=7))\ndef f(): pass",
        "import os, sys",
        "from math import pi as a",
        "from os.path import *",
        "global a",
        "pass",
        "h = f",
        "h()",
        "sys.modules['q'] = m",
        "os.environ.setdefault('q', 'r')",
        "o = {1: m}",
        "o[1]['x'] = 3",
        "dict = 3",
        "int = float",
        "a += f()",
        "u = [f]",
        "u[0]()",
        "s = {3}",
        "t = m.get",
        "l2 = list((m, n))",
        "l2[0]['x'] = 4",
        "m['y'] = m",
        "x = os",
        "a: int",
        "exit()",
        "raise ValueError",
        "assert a",
      ),
    },
  ),
}));

const START =
  'import os, sys\na, b, c = 3, 4, 5\nm = dict(x=1, y=2)\nn = {"z": m}\nl = [1, 2]\ndef f(): pass\ndef g(q): return q\n';
const modules = fc.array(statement, { minLength: 1, maxLength: 8 }).map((lines) => `${lines.join("\n")}\n`);

describe("a Python module that is not run", () => {
  it("has the values that Python gives it, or is said to need the run", () => {
    const seed = Number(process.env["PYTHON_SEED"] ?? 7);
    const count = Number(process.env["PYTHON_MODULES"] ?? 1500);
    const drawn = fc
      .sample(modules, { seed, numRuns: count })
      .flatMap((lines) => [
        `a, b, c, m, l = 3, 4, 5, dict(x=1, y=2), [1, 2]\nn = dict(z=m)\n${lines}`,
        START + lines,
      ]);
    const reals = inPython(drawn);
    let values = 0;
    for (const { source, values: real } of reals) {
      const ours = known(source);
      if (ours === null) continue;
      const found = differences(ours, real);
      if (found.length > 0) throw new Error(`${source}\n${found.join("\n")}`);
      values += Object.values(ours).filter((value) => !(value instanceof NeedsRun)).length;
    }
    // Most modules run to some length, and much of them is known.
    expect(reals.length).toBeGreaterThan(drawn.length / 2);
    expect(values).toBeGreaterThan(2 * reals.length);
  });

  const valueOf = (source: string): unknown =>
    JSON.parse(JSON.stringify(pythonModule(source, ["a"])["a"] ?? null)) as unknown;

  it.each([
    ["a, b = 24, 7", 24],
    ["a = b = 3", 3],
    ["a = 24\na += 8", 32],
    ["a = 24\nif True:\n    a = 48", 48],
    ["a = 1\nif 1 > 2:\n    a = 2\nelse:\n    a = 3", 3],
    ["a = -5 % 24", 19],
    ["a = -7 // 2", -4],
    ["a = 7 % -3", -2],
    ["a = 2 ** -1", 0.5],
    ["a = -2 ** 2", -4],
    ["a = int()", 0],
    ["a = float()", 0],
    ["a = not ''", true],
    ["m = dict(x=1)\nm['x'] += 8\na = m['x']", 9],
    ["m = dict(x=1)\nn = m\nn['x'] = 2\na = m['x']", 2],
    ["b = dict(x=1)\na = dict(b, y=2)", { x: 1, y: 2 }],
    ["a = 1\nif __name__ == '__main__':\n    print(a)", 1],
    ["a = (b := 5) + b", 10],
    ["a = 3 if 0 else 4", 4],
    ["a = 24\nprint(a:=48)", 48],
    ["a = min(a := 5, b := 7) + a + b", 17],
    ["a = 24\nb = dict(a=48)", 24],
    ["l = [1, 2]\na = l[-1]", 2],
    ["a = 1\ndel a\na = 2", 2],
  ])("is evaluated: %s", (source, value) => expect(valueOf(`${source}\n`)).toEqual(value));

  it.each([
    "a = 24\nfor b in (1, 2):\n    a = b",
    "a = dict(x=1)\na.update(x=2)",
    "a = 1\nexec('a = 2')",
    "a = 1\ndef f():\n    global a\n    a = 2\nf()",
    "a = 1\nfrom m import *",
    "a = 1 < 2 < 3",
    "a = dict(x=1)\nb = [a]\nb[0].clear()",
    "a = [i for i in (1, 2)]",
    "a = f'{1}'",
    "a = 2 ** 64",
    "a = 1\nif unknown():\n    a = 2",
    "a = 1\ntry:\n    a = int('x')\nexcept ValueError:\n    pass",
    "*a, b = 1, 2",
    "a = b'x'",
    "a = {1: 2}",
    "a = 1\nwith open('x') as a:\n    pass",
    "a = dict(x=1)\nfoo(a)",
    "a = len([1])",
    "a = dict(x=1)\nu['k'] = a\nu['k']['x'] = 2",
    "a = 24\nfoo(a:=48)",
    "a = 24\nfoo and print(1, a:=48)",
  ])("needs the run: %s", (source) =>
    expect(pythonModule(`${source}\n`, ["a"])["a"]).toBeInstanceOf(NeedsRun),
  );

  it("is known by part, and names the line of what is not", () => {
    const { a } = pythonModule("import os\na = dict(x=1,\n    y=os.getpid(), z=2)\n", ["a"]) as {
      a: Record<string, unknown>;
    };
    expect([a["x"], a["z"]]).toEqual([1, 2]);
    expect(a["y"]).toMatchObject({ line: 3, expression: "os.getpid()" });
    const circular = pythonModule("a = dict(x=1)\na['x'] = a\n", ["a"])["a"];
    expect(JSON.parse(JSON.stringify(circular))).toMatch(/inside themselves/);
  });
});
