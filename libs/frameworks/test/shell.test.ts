import { spawnSync } from "node:child_process";
import { ProblemError } from "@internevo/domain";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { shellScript } from "../src/shell.ts";

const PRELUDE = "run() { printf '%s\\0' \"$@\"; exit 0; }\n";

/** The words with which the real shell runs `run`; null where it does not. */
function inShell(script: string): string[] | null {
  const { stdout, signal } = spawnSync("bash", ["--norc", "-c", PRELUDE + script], {
    encoding: "utf8",
    timeout: 5000,
    cwd: "/proc/self/task",
    env: { PATH: "/usr/bin:/bin", LC_ALL: "C" },
  });
  if (signal !== null || !stdout.endsWith("\0end\0")) return null;
  return stdout.split("\0").slice(0, -1);
}

/** The words as they are read; null where the script is refused. */
function asRead(script: string): string[] | null {
  try {
    return (
      shellScript(script)
        .commands.find(([first]) => first === "run")
        ?.slice(1) ?? null
    );
  } catch (error) {
    if (error instanceof ProblemError) return null;
    throw new Error(script, { cause: error });
  }
}

/** What is not known here is written as $NAME or $(…), and may be any words. */
const isSame = (read: readonly string[], real: readonly string[]): boolean => {
  const text = read.join("\0");
  if (!text.includes("$")) return text === real.join("\0");
  const parts = text
    .split(/[\0 ]?(?:\$\([^)]*\)|\$(?:\w+|[?#]))[\0 ]?/)
    .map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${parts.join("[\\s\\S]*")}$`).test(real.join("\0"));
};

const name = fc.constantFrom("A", "B", "C", "L");
const literal = fc.constantFrom("4", "8", "x", "07", "1+2", "-3", "a.b", "/d/e", "k=v", "~x", "a#b", "%d");
const arithmetic = fc
  .tuple(
    fc.constantFrom("2", "A", "$B", "${A}", "-4", "(3", "7"),
    fc.constantFrom("+", "*", "-", "/", "%", "**", "<"),
    fc.constantFrom("3", "B", "(1+2)", "A", "08", "1)", "0"),
  )
  .map((parts) => `$((${parts.join(" ")}))`);
const atom = fc.oneof(
  { weight: 4, arbitrary: literal },
  { weight: 3, arbitrary: name.map((of) => `$${of}`) },
  { weight: 2, arbitrary: name.map((of) => `\${${of}}`) },
  { weight: 2, arbitrary: name.map((of) => `"$${of}"`) },
  {
    weight: 2,
    arbitrary: fc
      .tuple(
        name,
        fc.constantFrom("[@]", "[*]", "[0]", ":-5", "-6", ":-", ":-'q r'", ":=7", ":+8", "%x", "#4"),
      )
      .map(([of, rest]) => `\${${of}${rest}}`),
  },
  {
    weight: 2,
    arbitrary: fc
      .tuple(name, fc.constantFrom("[@]", "[*]", ":-5", "-6"))
      .map(([of, rest]) => `"\${${of}${rest}}"`),
  },
  { weight: 2, arbitrary: arithmetic },
  {
    weight: 1,
    arbitrary: fc.constantFrom(
      "'s t'",
      '"u v"',
      "''",
      '""',
      '"a\\"b"',
      '"\\\\"',
      "\\ ",
      "\\$A",
      '"\\$A"',
      "a\\\nb",
      '"a\\\nb"',
      "$(echo 4)",
      "$(echo 'y' 5)",
      '"$(echo "6")"',
      "{1,2}",
      "{3..5}",
      "$'t'",
      '"#"',
      "#",
      "A=5",
      "A+=6",
      "[x]",
      "a[1]=2",
      "2>&1",
      ">/dev/null",
      "2>/dev/null",
      "&>/dev/null",
      "</dev/null",
      "`echo 7`",
      "$#",
      "$?",
      '"$@"',
      "$@",
      '"$*"',
      "${@:1}",
      "${@:-5}",
      "$1",
      '"$2"',
      '"x $A y"',
      '"$A"$B',
      "$A$B",
      "x$A",
      "$A'z'",
      "!",
      "$UNSET",
      '"${UNSET}"',
      "${1:-5}",
      '"${2-6}"',
      "${1:-}",
      "${N:=7}",
      '"${N=8 9}"',
      "${N:='p q'}",
      "$N",
      "$",
    ),
  },
);
const words = fc.array(atom, { maxLength: 5 });
const value = fc.array(atom, { minLength: 0, maxLength: 2 }).map((parts) => parts.join(""));
const assignment = fc.tuple(name, fc.constantFrom("=", "=", "=", "+="), value).map((parts) => parts.join(""));
const quotedAssignment = fc
  .tuple(name, fc.constantFrom("=", "+="), fc.constantFrom("8", "x y", "$A", "${L[@]}"))
  .map((parts) => `"${parts.join("")}"`);
const array = fc
  .tuple(
    name,
    fc.constantFrom("=", "+="),
    fc.array(fc.oneof(atom, fc.constant("\n"), fc.constant("# c\n"), fc.constant("[2]=x")), { maxLength: 4 }),
  )
  .map(([of, sign, parts]) => `${of}${sign}(${parts.join(" ")})`);
const command = fc.oneof(
  { weight: 8, arbitrary: assignment },
  { weight: 4, arbitrary: array },
  {
    weight: 2,
    arbitrary: fc.array(assignment, { minLength: 2, maxLength: 3 }).map((parts) => parts.join(" ")),
  },
  {
    weight: 2,
    arbitrary: fc
      .tuple(
        fc.constantFrom("export", "readonly", "declare", "declare -i", "export -n", "local", "typeset -x"),
        fc.array(fc.oneof(assignment, quotedAssignment, name), { minLength: 1, maxLength: 2 }),
      )
      .map(([first, rest]) => `${first} ${rest.join(" ")}`),
  },
  {
    weight: 1,
    arbitrary: fc.tuple(assignment, words).map(([first, rest]) => `${first} true ${rest.join(" ")}`),
  },
  {
    weight: 2,
    arbitrary: fc.constantFrom(
      "true",
      "false",
      "unset A",
      "unset A B",
      "read A </dev/null",
      "printf -v A 9",
      "let A=3",
      "eval A=3",
      "source /dev/null",
      ". /dev/null",
      "set -e",
      "set -- 1 2",
      "A=9 B=$A",
      "(A=9)",
      "{ A=9; }",
      "A[1]=9",
      "! A=9",
      "time A=9",
      'test -n "$A"',
      "IFS=,",
      "((A=9))",
      "[[ $A ]]",
      "command export A=9",
      "f() { A=9; }",
      "A =9",
      '"A"=9',
      "A\\=9",
      "echo x >/dev/null",
      "mapfile A </dev/null",
      "cd .",
      "shift",
      "set -- $A x",
      'set -- "$@" $B "${L[@]}"',
      "shift 2",
      "set -euo pipefail",
      "set y $UNSET",
      "set -- z | true",
      "set -- z &",
      "set 1 2 && true",
      "true || set 1 2",
      "A=9 eval B=8",
      "exit",
      "exec",
      "exec 2>/dev/null",
      "exit &",
      "true || exit",
      "exit | true",
      ": ${N:=6}",
      ': "${N:=6 7}" ${A:=5}',
      ": ${N:=6} | true",
      ": ${N:=6} &",
      "B=$N true ${N:=6}",
      "unset N A",
    ),
  },
  {
    weight: 1,
    arbitrary: fc
      .tuple(
        fc.constantFrom("if true; then", "if false; then", "for A in 1 2; do", "while false; do"),
        assignment,
      )
      .map(([first, inner]) => `${first} ${inner}; ${first.startsWith("if") ? "fi" : "done"}`),
  },
);
const scripts = fc
  .tuple(
    fc.array(
      fc.tuple(command, fc.constantFrom("\n", "\n", "\n", "; ", " && ", " || ", " | ", " &\n", "\n# c\n")),
      { maxLength: 7 },
    ),
    words,
  )
  .map(
    ([commands, rest]) =>
      `A=4 B="8 9"; L=(1 "2 3")\n${commands.map((parts) => parts.join("")).join("")}\nrun ${rest.join(" ")} end\n`,
  );

describe("a shell script that is not run", () => {
  it("has the words that the shell gives it, or is refused", () => {
    const drawn = fc.sample(scripts, {
      seed: Number(process.env["SHELL_SEED"] ?? 5),
      numRuns: Number(process.env["SHELL_SCRIPTS"] ?? 1000),
    });
    let compared = 0;
    for (const script of drawn) {
      const read = asRead(script);
      const real = read === null ? null : inShell(script);
      if (read === null || real === null) continue;
      compared += 1;
      if (!isSame(read, real))
        throw new Error(`${script}\nis in the shell ${JSON.stringify(real)}, here ${JSON.stringify(read)}`);
    }
    expect(compared).toBeGreaterThan(drawn.length / 10);
  });

  const readOf = (script: string): string[] | null => asRead(`${script}\nrun $A`);
  it.each([
    ["A=4\nA+=8", ["48"]],
    ["A=4 B=$A\nA=$B", ["4"]],
    ["A=4\nA=5 true", ["4"]],
    ["A=(1 2)", ["1"]],
    ["A=4\nA=5 | true", ["4"]],
    ["A=$((7 % 4 * (2 + 1)))", ["9"]],
    ["A=\nA=${A:-6}", ["6"]],
    ["A='1 2'\nB=$A\nA=$B", ["1", "2"]],
    ["A=a\\\nb", ["ab"]],
    ['A="\\$x"', ["$x"]],
    ["A=5 && A=6", ["6"]],
    ["true >/dev/null 2>&1\nA=7", ["7"]],
    ['A=4\nexport "A=8"', ["8"]],
    ["A=4\nX=A=8\nexport $X", ["8"]],
    ["A=4\nX='B=1 A=8'\ndeclare -x $X", ["8"]],
    ["A=4\nX=export\n$X A=8", ["8"]],
    ["A=4\nX=export Y='8 9'\n$X A=$Y 2>/dev/null", ["8"]],
    ["A=4\nB=1 typeset A=8", ["8"]],
    ["A=4\nA=8 export B=1", ["4"]],
    ["A=4\nexport A=9 B=$A\nA=$B", ["4"]],
    ["A=4\nexport 'A+=8' A+=6", ["486"]],
    ["source /dev/null\nA=5", ["5"]],
    ["source /dev/null\nunset A\nA=${A:-6}", ["6"]],
    ["A=4\nexport \\A=8", ["8"]],
    ["trap true EXIT INT TERM\nset -- -n -k\nset -e -- -t\nA=8", ["8"]],
  ] as const)("is read: %s", (script, real) =>
    expect([readOf(script), inShell(`${script}\nrun $A end`)?.slice(0, -1)]).toEqual([real, real]),
  );

  it.each([
    [": ${A:=64}", ["64"]],
    ["A=\n: ${A:=64}", ["64"]],
    ["A=\n: ${A=64}\nA=x$A", ["x"]],
    ["A=4\n: ${A:=64}", ["4"]],
    [': "${A:=6 4}"', ["6", "4"]],
    ["B=${A:=8}", ["8"]],
    ["B=${A:=8} A=9", ["9"]],
    ["export B=${A:=8} C=$A\nA=$C$A", ["88"]],
    ["true ${A:=8} $A >/dev/null", ["8"]],
    ["A=4\nunset A\n: ${A:=8}", ["8"]],
    ["A=${B:=8}\nA=$A$B", ["88"]],
  ] as const)("sets a variable to its default: %s", (script, real) =>
    expect([readOf(script), inShell(`${script}\nrun $A end`)?.slice(0, -1)]).toEqual([real, real]),
  );

  it.each([": ${A:=5} &", "cd x && : ${A:=5}", "read A\n: ${A:=5}", ": ${A:=5} | true"])(
    "leaves unknown what may have its default or not: %s",
    (script) => expect(readOf(script)).toEqual(["$A"]),
  );

  it.each([
    "A=1 true ${B:=5}",
    "B=${A:=5} true $A",
    "true >${A:=5} $A",
    "L=()\n: ${L:=5}",
    ": ${IFS:=,}",
    ": ${A:?none}",
    ": ${A:=$B}",
  ])("refuses a default whose order or value is not understood: %s", (script) =>
    expect(readOf(script)).toBeNull(),
  );

  const runOf = (script: string): string[] | null => asRead(script);
  it.each([
    ['set -- --tp 8\nrun "$@"', ["--tp", "8"]],
    ['set -- --tp 8\nset -- "$@" "x y"\nrun $@', ["--tp", "8", "x", "y"]],
    ['set -- "x y" 2\nrun "$@" "$*" $*', ["x y", "2", "x y 2", "x", "y", "2"]],
    ['set -- 1 2 3\nshift\nrun "$@"', ["2", "3"]],
    ['set -- 1 2 3\nshift 4\nrun "$@"', ["1", "2", "3"]],
    ['set -euo pipefail\nset -- 1\nset -x +e -\nrun "$@"', ["1"]],
    ['set -eo pipefail 1 - 2\nrun "$@"', ["1", "-", "2"]],
    ['set -- 1 2\nrun $2 "$3" ${1} $10', ["2", "", "1", "10"]],
    ['set -- 1\nset --\nrun 4 "$@"', ["4"]],
    ['set -- 1 | true\nrun 4 "$@"', ["4"]],
    ['shift\nrun 4 "$@" ${@:1}', ["4"]],
    ["set -- run 4\nrun 5", ["5"]],
    ['run ${1:-2} ${10-x} "${2:-y z}" ${1:-}4', ["2", "x", "y z", "4"]],
    ["A=${1:-2}\nshift\nB=${1:-3}\nrun $A $B", ["2", "3"]],
    ['set -- 8 ""\nrun ${1:-2} "${2-3}" ${2:-4} ${3:-5}', ["8", "", "4", "5"]],
    ["set -- 8 9\nshift\nrun ${1:-2} ${2:-3}", ["9", "3"]],
  ] as const)("has the parameters that the script sets: %s", (script, real) =>
    expect([runOf(script), inShell(`${script} end`)?.slice(0, -1)]).toEqual([real, real]),
  );

  it.each([
    'set $UNSET 1\nrun "$@"',
    'cd x && set -- 1\nrun "$@"',
    'set -- 1 && cd x &\nrun "$@"',
    'set -- $UNSET 1\nshift\nrun "$@"',
    'set -- 1\nshift $UNSET\nrun "$@"',
    "set -- 1\nshift $UNSET\nrun $1",
    'source x\nrun "$*"',
    "set -- 1\nrun ${@:1}",
    "run ${@:-8}",
    "source x\nrun ${1:-8}",
  ])("is refused where its parameters are not known: %s", (script) => expect(runOf(script)).toBeNull());

  it.each(["exit 0", "A=8 && exit", "return", "exec true", "B=1 exit"])(
    "reads nothing behind what ends the script: %s",
    (end) =>
      expect(shellScript(`${end}\nrun 4 "`)).toEqual({
        commands: [end.split(" ").filter((word) => !/[=&]/.test(word))],
        end: { line: 1, command: end.match(/exit|return|exec/)?.[0] },
      }),
  );

  it.each(["exit &", "exit | true", "cd x || exit 1", "exec >/dev/null", "cd x && exit"])(
    "goes on behind what may not end it: %s",
    (end) => expect(runOf(`${end}\nrun 4`)).toEqual(["4"]),
  );

  it("leaves a parameter unknown behind what may be several words", () =>
    expect(runOf("set -- $UNSET 8\nrun $2 ${2:-3}")).toEqual(["$2", "$2"]));

  it("leaves a parameter of the caller unknown that has no default", () =>
    expect(runOf('run $1 "${2}" ${3:?none} ${10%x}')).toEqual(["$1", "$2", "$3", "$10"]));

  it.each([
    'A=4\nX=$UNSET\nexport "$X"',
    "A=4\nexport $(cat env)",
    "A=4\nexport A$UNSET=5",
    "A=4\nunset $UNSET",
    "A=4\nread $UNSET",
    "A=4\nexport 'A[0]=5'",
    "A=(4)\nexport 'A=(5)'",
    "A=4\nA=5 $UNSET",
    "A=(4 5)\nA=6 &\nA=7\nA=${A[@]}",
    "source x\nA=${A:-5}",
    "A=4\nfalse && A=5",
    "A=4\nsource x",
    "A=4\nread A",
    "A=4\neval A=5",
    "A=5 &",
  ])("leaves unknown what it does not know: %s", (script) => expect(readOf(script)).toEqual(["$A"]));

  it.each([
    "A[1]=5",
    "(A=5)",
    "{ A=5; }",
    "((A=5))",
    "f() { A=5; }",
    "A=$((010))",
    "A=$((2--1))",
    "IFS=,",
    "declare -i A=1+2",
    "A={1,2}",
    "A=(1 [5]=3)",
    "command -p export A=8",
    "trap 'A=8' DEBUG",
    "trap 'A=8' INT sigdebug",
    "trap 'A=8' $UNSET",
    "alias run='run 8'",
    "shopt -s lastpipe",
    "shopt -s expand_aliases extglob",
    "set -n",
    "set -ekx",
    "set -eo posix",
    "builtin -- eval A=8",
  ])("is refused: %s", (script) => expect(readOf(script)).toBeNull());
});
