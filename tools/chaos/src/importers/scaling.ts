import type { Framework, FrameworkFile } from "@internevo/frameworks";

/** Texts that grow with a number, in which each line or word may have the reader look at all before it. */
interface Family {
  readonly name: string;
  readonly framework: Framework;
  readonly files: (count: number) => readonly [FrameworkFile, ...FrameworkFile[]];
}

const RUN =
  "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 4 --hidden-size 1024 --num-attention-heads 8 " +
  "--swiglu --vocab-size 1000 --seq-length 4096 --micro-batch-size 1 --bf16";
const times = (count: number, part: (at: number) => string, between = "\n"): string =>
  Array.from({ length: count }, (_, at) => part(at)).join(between);

const PYTHON: Readonly<Record<string, (count: number) => string>> = {
  "a dictionary copied with one entry more": (n) => `d = dict()\n${times(n, (i) => `d = dict(d, a${i}=1)`)}`,
  "dictionaries each copied from the one before": (n) =>
    `d0 = dict()\n${times(n, (i) => `d${i + 1}=dict(d${i},a${i}=1)`)}`,
  "a dictionary unpacked": (n) => `d = dict()\n${times(n, (i) => `d = {**d, "a${i}": 1}`)}`,
  "a dictionary unpacked as arguments": (n) => `d = dict()\n${times(n, (i) => `d = dict(**d, a${i}=1)`)}`,
  "a large dictionary copied": (n) =>
    `d = dict(${times(n, (i) => `a${i}=1`, ",")})\n${times(n, () => "e = dict(d)")}`,
  "a large dictionary tested": (n) =>
    `d = dict(${times(n, (i) => `a${i}=1`, ",")})\n${times(n, () => "e = not d")}`,
  "a large dictionary set": (n) =>
    `d = dict()\n${times(n, (i) => `d["a${i}"] = 1`)}\n${times(n, (i) => `del d["a${i}"]`)}`,
  "a list repeated in lists": (n) => `a = [1]\n${times(n, () => "a = [*a, *a]")}`,
  "a list in lists": (n) => `a = [1]\n${times(n, () => "a = [a, a]")}`,
  "a list unpacked": (n) => `${times(n, (i) => `a${i}`, ",")} = ${times(n, () => "1", ",")}\nmodel = a0`,
  "a large list that changes": (n) => `a = [${times(n, () => "[1]", ",")}]\n${times(n, () => "f(a)")}`,
  "the least of many": (n) => `a = min(${times(n, () => "1", ",")})`,
  "texts that are added": (n) => `a = ""\n${times(n, () => 'a += "xyz"')}`,
  "texts that double": (n) => `a = "x"\n${times(n, () => "a = a + a")}`,
  "long texts that are compared": (n) =>
    `a = "${"x".repeat(60_000)}"\n${times(n, () => 'b = a + "x" == a + "y"')}`,
  "texts side by side": (n) => `a = ${times(n, () => '"x"', " ")}`,
  "an f-string of many fields": (n) => `a = f"${"{b}".repeat(n)}"`,
  "many f-strings": (n) => times(n, () => 'a = f"{a}{a}"'),
  "signs before a long list": (n) => `a = ${"-".repeat(90)}[${times(n, () => "1", ",")}]`,
  "calls around a long list": (n) => `a = ${"f(".repeat(90)}[${times(n, () => "b", ",")}]${")".repeat(90)}`,
  "values that leak": (n) => `d = [1]\n${times(n, () => "u[0] = d")}`,
  "functions that are called": (n) => `def f(): pass\n${times(n, (i) => `a${i} = 1\nf()`)}`,
  "what everything is lost by": (n) => `${times(n, (i) => `a${i} = 1`)}\n${times(n, () => "exec(x)")}`,
  "conditions in one another": (n) =>
    times(Math.min(n, 900), (i) => `${" ".repeat(i)}if True:`).concat("\n" + " ".repeat(900) + "a = 1"),
  "branches that are not known": (n) => `if a: pass\n${times(n, (i) => `elif a${i}: pass`)}`,
  "branches that are known": (n) => `if 0: pass\n${times(n, () => `elif 0: pass`)}`,
  "brackets that nothing closes": (n) => `a = ${"(".repeat(n)}`,
  "braces that nothing closes": (n) => `a = ${"{".repeat(n)}`,
  "square brackets that nothing closes": (n) => `a = ${"[".repeat(n)}`,
  "brackets in one another": (n) => `a = ${"(".repeat(n)}1${")".repeat(n)}`,
  "calls in one another": (n) => `a = ${"dict(a=".repeat(n)}1${")".repeat(n)}`,
  "subscripts in one another": (n) => `a = ${"b[".repeat(n)}1${"]".repeat(n)}`,
  "subscripts in a row": (n) => `a = b${"[1]".repeat(n)}`,
  "names in a row": (n) => `a = b${".c".repeat(n)}`,
  "a long sum": (n) => `a = 1${" + 1".repeat(n)}`,
  "lambdas in one another": (n) => `a = ${"lambda: ".repeat(n)}1`,
  "conditional values in a row": (n) => `a = ${"1 if 0 else ".repeat(n)}2`,
  "targets in a row": (n) => `${times(n, (i) => `a${i}`, " = ")} = 1`,
  "words that are no Python": (n) => times(n, () => "a b c )", " "),
  "names that are lost": (n) =>
    `${times(n, (i) => `a${i} = [1]`)}\nfor x in y:\n${times(n, (i) => `    a${i} = 2`)}`,
};
const SHELL: Readonly<Record<string, (count: number) => string>> = {
  "files that are sourced": (n) => `${times(n, (i) => `a${i}=`)}\n${times(n, () => ".")}`,
  "assignments in one line": (n) => times(n, () => "a=", " "),
  "different assignments in one line": (n) => times(n, (i) => `a${i}=${i}`, " "),
  "assignments in one list": (n) => times(n, (i) => `a${i}=`, " && "),
  "an array that grows": (n) => `A=()\n${times(n, () => "A+=(x)")}`,
  "an array whose first grows": (n) => `A=(${"x ".repeat(n)})\n${times(n, () => "A+=x")}`,
  "an array whose first is set": (n) => `A=(${"x ".repeat(n)})\n${times(n, () => "A=x")}`,
  "a variable that grows": (n) => `a=\n${times(n, () => "a=${a}x")}`,
  "a variable that is added to": (n) => `a=\n${times(n, () => "a+=x")}`,
  "a variable that doubles": (n) => `a=x\n${times(n, () => "a=$a$a")}`,
  "parameters that grow": (n) => times(n, () => 'set -- "$@" x'),
  "parameters that are shifted": (n) => `set -- ${"x ".repeat(n)}\n${times(n, () => "shift")}`,
  "parameters by number": (n) => `set -- ${"x ".repeat(n)}\n${times(n, () => `a=\${${n}}`)}`,
  "words before a command": (n) => `${"! ".repeat(n)}true`,
  "brackets in a word": (n) => "a[".repeat(n),
  "signs in a word": (n) => "1=".repeat(n),
  "assignments in a word": (n) => `a${"=a".repeat(n)}`,
  "braces in a word": (n) => "{a".repeat(n),
  "commands in one another": (n) => `a=${"$(".repeat(n)}x${")".repeat(n)}`,
  "commands side by side": (n) => `a=${"$(x)".repeat(n)}`,
  "arithmetic in one another": (n) => `a=$((${"(".repeat(n)}1${")".repeat(n)}))`,
  "arithmetic in a row": (n) => `a=0\n${times(n, () => "a=$((a + 1))")}`,
  "quotes in a row": (n) => `a=${"''".repeat(n)}`,
  "lines that go on": (n) => `a ${"\\\n".repeat(n)}`,
  "a text that nothing closes": (n) => `a="${"x\\\n".repeat(n)}`,
  "a here-document": (n) => `cat <<EOF\n${"x\n".repeat(n)}EOF`,
  "names that are unset": (n) => `${times(n, (i) => `a${i}=`)}\n${times(n, (i) => `unset a${i}`)}`,
  "names that are read": (n) => times(n, (i) => `read a${i}`),
  "names that are exported": (n) => `export ${times(n, (i) => `"a${i}=1"`, " ")}`,
  "names that are perhaps exported": (n) => times(n, (i) => `a${i}=\nexport $x`),
  "lists in the background": (n) => times(n, (i) => `a${i}=1 && b &`),
  "options that are not known": (n) => `${RUN} ${times(n, (i) => `--num-layerz${i} 1`, " ")}`,
  "an option that is repeated": (n) => `${RUN} ${times(n, () => "--bf16", " ")}`,
  "values of one option": (n) => `${RUN} --data-path ${times(n, () => "x", " ")}`,
};
const TOML: Readonly<Record<string, (count: number) => string>> = {
  keys: (n) => `[training]\n${times(n, (i) => `a${i} = 1`)}`,
  tables: (n) => times(n, (i) => `[a${i}]\nb = 1`),
  "tables of tables": (n) => times(n, (i) => `[a.b${i}]\nc = 1`),
  "lists of tables": (n) => times(n, () => "[[a]]\nb = 1"),
  "lists in lists of tables": (n) => `[[a]]\n${times(n, () => "[[a.b]]\nc = 1")}`,
  "a key of many parts": (n) => `${times(n, () => "a", ".")} = 1`,
  "keys of parts": (n) => times(n, (i) => `a.b${i} = 1`),
  "inline tables": (n) => `a = {${times(n, (i) => `b${i} = 1`, ", ")}}`,
  "inline tables in one another": (n) => `a = ${"{a = ".repeat(n)}1${"}".repeat(n)}`,
  "a list": (n) => `a = [${times(n, () => "1", ", ")}]`,
  "lists in one another": (n) => `a = ${"[".repeat(n)}${"]".repeat(n)}`,
  "lists that nothing closes": (n) => `a = ${"[".repeat(n)}`,
  "lists in lines": (n) => `a = [\n${times(n, () => "  [1],")}\n]`,
  "texts of many lines": (n) => `a = """${"x\n".repeat(n)}"""`,
  "texts of escapes": (n) => `a = "${"\\n".repeat(n)}"`,
  "texts in lists": (n) => `a = [${times(n, () => '"""x"""', ",\n")}]`,
  "texts that nothing closes": (n) => `a = """${"x\n".repeat(n)}`,
  comments: (n) => times(n, () => "# x"),
  "long numbers": (n) => `a = ${"1".repeat(n)}`,
  "underlined numbers": (n) => `a = 1${"_1".repeat(n)}`,
  spaces: (n) => `a = [${" ".repeat(n)}1${" ".repeat(n)}]`,
  "keys in quotes": (n) => times(n, (i) => `"a${i}" = 'b'`),
};
const JSON_TEXT: Readonly<Record<string, (count: number) => string>> = {
  keys: (n) => `{${times(n, (i) => `"a${i}": 1`, ",")}}`,
  "a key that is repeated": (n) => `{${times(n, () => '"bf16": {"enabled": true}', ",")}}`,
  "objects in one another": (n) => `${'{"a":'.repeat(n)}1${"}".repeat(n)}`,
  "lists in one another": (n) => `{"a":${"[".repeat(n)}${"]".repeat(n)}}`,
  "lists side by side": (n) => `{"a":[${times(n, () => "[]", ",")}]}`,
  escapes: (n) => `{"a":"${"\\u0041".repeat(n)}"}`,
};

const REST = "\nmodel = dict()\ndata = dict()\nparallel = dict()\n";
const of = (
  framework: Framework,
  language: string,
  texts: Readonly<Record<string, (count: number) => string>>,
  files: (text: string) => readonly [FrameworkFile, ...FrameworkFile[]],
): Family[] =>
  Object.entries(texts).map(([name, text]) => ({
    name: `${language}: ${name}`,
    framework,
    files: (count) => files(text(count)),
  }));

export const FAMILIES: readonly Family[] = [
  ...of("internevo", "python", PYTHON, (text) => [{ name: "c.py", text: text + REST }]),
  ...of("megatron", "shell", SHELL, (text) => [{ name: "run.sh", text: `${text}\n${RUN}\n` }]),
  ...of("torchtitan", "toml", TOML, (text) => [{ name: "t.toml", text }]),
  ...of("deepspeed", "json", JSON_TEXT, (text) => [
    { name: "run.sh", text: `${RUN} --deepspeed --deepspeed_config ds.json\n` },
    { name: "ds.json", text },
  ]),
];
