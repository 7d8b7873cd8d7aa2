import { ProblemError } from "@internevo/domain";
import type { SyntaxNode } from "@lezer/common";
import { parser } from "@lezer/python";

/** What a configuration in Python is made of. Calls other than of types and `dict` are not run. */
export type PythonValue = null | boolean | number | string | PythonValue[] | { [key: string]: PythonValue };

class Unreadable extends Error {
  constructor(expression: string) {
    super(expression.length > 200 ? `${expression.slice(0, 200)}…` : expression);
  }
}

/** Values inside one another, and values and characters in all of one: variables can double each other. */
const MOST_DEPTH = 100;
const MOST_SIZE = 1 << 20;

type PythonRecord = { [key: string]: PythonValue };
/** A record that has what a file says, and nothing that every object has. */
const recordOf = (entries: readonly (readonly [string, PythonValue])[]): PythonRecord => {
  const record = Object.create(null) as PythonRecord;
  for (const [key, value] of entries) record[key] = value;
  return record;
};

/** Evaluates the assignments of a module; what cannot be known without running it is left out, and named when it is needed. */
class Evaluator {
  readonly text: string;
  readonly values = new Map<string, PythonValue>();
  readonly unreadable = new Map<string, string>();
  readonly #sizes = new WeakMap<object, number>();
  #depth = 0;

  constructor(text: string) {
    this.text = text;
  }

  source(node: SyntaxNode): string {
    return this.text.slice(node.from, node.to);
  }

  run(): void {
    const tree = parser.parse(this.text);
    const broken = tree.topNode.cursor();
    do {
      if (broken.type.isError) {
        const line = this.text.slice(0, broken.from).split("\n").length;
        throw new ProblemError("bad-request", `line ${line} is not Python`, [{ field: `line ${line}`, value: this.text.split("\n")[line - 1] ?? "", message: "is not Python", remedy: "mend the file" }]);
      }
    } while (broken.next());
    for (let node = tree.topNode.firstChild; node; node = node.nextSibling) if (node.name === "AssignStatement") this.assign(node);
  }

  assign(node: SyntaxNode): void {
    const target = node.firstChild;
    const value = node.lastChild;
    if (!target || !value || node.getChildren("AssignOp").length !== 1) return;
    const name = this.source(target);
    try {
      const known = this.evaluate(value);
      if (target.name === "VariableName") this.values.set(name, known);
      else if (target.name === "MemberExpression") {
        const [of, key] = this.subscript(target);
        if (typeof of === "object" && of !== null && !Array.isArray(of)) {
          of[key] = known;
          this.#sizes.set(of, this.#sizeOf(of) + this.#sizeOf(known) + 1);
        }
      }
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error;
      this.values.delete(name);
      this.unreadable.set(name, error.message);
    }
  }

  /** A text, or a number as a key. */
  key(node: SyntaxNode): string {
    const value = this.evaluate(node);
    if (typeof value !== "string" && typeof value !== "number") throw new Unreadable(this.source(node));
    return String(value);
  }

  children(node: SyntaxNode): SyntaxNode[] {
    const found: SyntaxNode[] = [];
    for (let child = node.firstChild; child; child = child.nextSibling) if (!/^[()[\]{},]$/.test(child.name) && child.name !== "Comment") found.push(child);
    return found;
  }

  subscript(node: SyntaxNode): [PythonValue, string] {
    const [of, ...rest] = this.children(node);
    const key = rest.at(-1);
    if (!of || !key || rest.length !== 1) throw new Unreadable(this.source(node));
    return [this.evaluate(of), this.key(key)];
  }

  /** What a value comes to when it is written out. */
  #sizeOf(value: PythonValue): number {
    if (typeof value === "string") return value.length + 1;
    return typeof value === "object" && value !== null ? (this.#sizes.get(value) ?? 1) : 1;
  }

  /** @throws Unreadable what is nested, or grows, beyond any configuration. */
  evaluate(node: SyntaxNode): PythonValue {
    if (this.#depth >= MOST_DEPTH) throw new Unreadable(this.source(node));
    this.#depth += 1;
    try {
      const value = this.#evaluated(node);
      if (typeof value === "object" && value !== null && !this.#sizes.has(value)) this.#sizes.set(value, Object.values(value).reduce<number>((sum, each) => sum + this.#sizeOf(each), 1));
      if (this.#sizeOf(value) > MOST_SIZE) throw new Unreadable(this.source(node));
      return value;
    } finally {
      this.#depth -= 1;
    }
  }

  #evaluated(node: SyntaxNode): PythonValue {
    switch (node.name) {
      case "Number": return this.number(this.source(node).replaceAll("_", ""));
      case "String": return this.string(this.source(node));
      case "ContinuedString": return this.children(node).map((part) => this.key(part)).join("");
      case "Boolean": return this.source(node) === "True";
      case "None": return null;
      case "VariableName": return this.variable(node);
      case "ParenthesizedExpression": return this.evaluate(this.children(node)[0] as SyntaxNode);
      case "ArrayExpression":
      case "TupleExpression": return this.children(node).map((each) => this.evaluate(each));
      case "DictionaryExpression": return this.dictionary(node);
      case "UnaryExpression": return this.unary(node);
      case "BinaryExpression": return this.binary(node);
      case "ConditionalExpression": throw new Unreadable(this.source(node));
      case "CallExpression": return this.call(node);
      case "MemberExpression": {
        if (node.getChild(".")) return this.source(node);
        const [of, key] = this.subscript(node);
        if (typeof of !== "object" || of === null || !Object.hasOwn(of, key)) throw new Unreadable(this.source(node));
        return (of as PythonRecord)[key] as PythonValue;
      }
      // A text with fields in it names files and the like.
      case "FormatString": return this.source(node).slice(2, -1);
      default: throw new Unreadable(this.source(node));
    }
  }

  number(text: string): number {
    const value = Number(text);
    if (Number.isNaN(value)) throw new Unreadable(text);
    return value;
  }

  string(text: string): string {
    const [, , quoted] = /^[rRbBuU]*("""|'''|"|')([\s\S]*)\1$/.exec(text) ?? [];
    return (quoted ?? "").replace(/\\(["'\\])/g, "$1").replaceAll("\\n", "\n");
  }

  variable(node: SyntaxNode): PythonValue {
    const name = this.source(node);
    const value = this.values.get(name);
    if (value === undefined) throw new Unreadable(this.unreadable.get(name) ?? name);
    return value;
  }

  dictionary(node: SyntaxNode): PythonValue {
    const parts = this.children(node).filter(({ name }) => name !== ":");
    const entries: [string, PythonValue][] = [];
    for (let at = 0; at + 1 < parts.length; at += 2) entries.push([this.key(parts[at] as SyntaxNode), this.evaluate(parts[at + 1] as SyntaxNode)]);
    return recordOf(entries);
  }

  unary(node: SyntaxNode): PythonValue {
    const operand = this.evaluate(node.lastChild as SyntaxNode);
    const operator = this.source(node.firstChild as SyntaxNode);
    if (operator === "not") return operand === false || operand === null || operand === 0;
    if (typeof operand !== "number") throw new Unreadable(this.source(node));
    return operator === "-" ? -operand : operand;
  }

  binary(node: SyntaxNode): PythonValue {
    const [left, operator, right] = this.children(node);
    if (!left || !operator || !right) throw new Unreadable(this.source(node));
    const a = this.evaluate(left);
    const b = this.evaluate(right);
    const sign = this.source(operator);
    if (typeof a === "string" && typeof b === "string" && sign === "+") return a + b;
    if (typeof a !== "number" || typeof b !== "number") throw new Unreadable(this.source(node));
    const results: Readonly<Record<string, number>> = { "+": a + b, "-": a - b, "*": a * b, "/": a / b, "//": Math.floor(a / b), "%": a % b, "**": a ** b };
    const result = results[sign];
    if (result === undefined || !Number.isFinite(result)) throw new Unreadable(this.source(node));
    return result;
  }

  /** `dict(a=1)` and `TypeName(a=1)` are records, `int(x)` and `float(x)` numbers. */
  call(node: SyntaxNode): PythonValue {
    const callee = this.source(node.firstChild as SyntaxNode);
    const list = node.getChild("ArgList");
    const parts = list ? this.children(list) : [];
    if (callee === "int" || callee === "float") {
      const value = this.evaluate(parts[0] as SyntaxNode);
      if (parts.length !== 1 || typeof value !== "number") throw new Unreadable(this.source(node));
      return callee === "int" ? Math.trunc(value) : value;
    }
    if (callee !== "dict" && !/^[A-Z]\w*$/.test(callee)) throw new Unreadable(this.source(node));
    const entries: [string, PythonValue][] = [];
    for (let at = 0; at < parts.length; at += 3) {
      const [name, assign, value] = parts.slice(at, at + 3);
      if (!name || assign?.name !== "AssignOp" || !value) throw new Unreadable(this.source(node));
      entries.push([this.source(name), this.evaluate(value)]);
    }
    return recordOf(entries);
  }
}

export interface PythonModule {
  readonly values: Readonly<Record<string, PythonValue>>;
  /** Variables whose value is not known without running the module, and the expression that is to blame. */
  readonly unreadable: Readonly<Record<string, string>>;
}

/**
 * The variables of a Python module made of literals, arithmetic, records and other variables; nothing is run.
 * @throws ProblemError `bad-request` where the text is not Python.
 */
export function pythonModule(text: string): PythonModule {
  const evaluator = new Evaluator(text);
  evaluator.run();
  return { values: recordOf([...evaluator.values]), unreadable: Object.assign(Object.create(null) as Record<string, string>, Object.fromEntries(evaluator.unreadable)) };
}
