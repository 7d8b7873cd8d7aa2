import type { SyntaxNode } from "@lezer/common";
import { MOST_DEPTH } from "./depth.ts";
import { Names, POWERFUL } from "./python-names.ts";
import {
  arithmetic,
  comparison,
  isContainer,
  childrenOf,
  MOST_CHARACTERS,
  NeedsRun,
  partsOf,
  recordOf,
  type Container,
  type PythonValue,
} from "./python-values.ts";

/** Builtins that neither change their arguments nor give them back. */
const HARMLESS: ReadonlySet<string> = new Set([
  "print",
  "len",
  "str",
  "repr",
  "round",
  "bool",
  "type",
  "isinstance",
]);
const ESCAPES: Readonly<Record<string, string>> = {
  "\n": "",
  "\\": "\\",
  "'": "'",
  '"': '"',
  a: "\u0007",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
};

/** How tightly operators bind; what stands alone binds tightest. */
const ALONE = 13;
const LEVELS: Readonly<Record<string, number>> = {
  or: 1,
  and: 2,
  not: 3,
  "|": 5,
  "^": 6,
  "&": 7,
  "<<": 8,
  ">>": 8,
  "+": 9,
  "-": 9,
  "*": 10,
  "/": 10,
  "//": 10,
  "%": 10,
  "@": 10,
  "**": 12,
};
const COMPARISON = 4;
const SIGN = 11;

/** Evaluates expressions that it knows to evaluate as Python does. */
export class Expressions extends Names {
  /** A subscript of a known container, that the container has or can get. */
  protected place(
    node: SyntaxNode,
  ): { readonly container: Container; readonly key: string | number } | undefined {
    if (node.getChild(".") || node.getChild(":")) return undefined;
    const parts = partsOf(node);
    if (parts.length !== 2) return undefined;
    const [of, at] = parts as [SyntaxNode, SyntaxNode];
    // A comma makes a tuple of the key.
    for (let child = node.firstChild; child; child = child.nextSibling)
      if (child.name === ",") return undefined;
    const container = this.evaluate(of);
    const key = this.evaluate(at);
    if (!isContainer(container) || this.whySpoilt(container)) return undefined;
    if (!Array.isArray(container)) return typeof key === "string" ? { container, key } : undefined;
    if (
      typeof key !== "number" ||
      !Number.isInteger(key) ||
      key < -container.length ||
      key >= container.length
    )
      return undefined;
    return { container, key: key < 0 ? container.length + key : key };
  }

  protected truth(value: PythonValue, node: SyntaxNode): boolean | undefined {
    if (value instanceof NeedsRun || (isContainer(value) && this.whySpoilt(value))) return undefined;
    if (!isContainer(value)) return Boolean(value);
    this.count(value, node);
    return childrenOf(value).length > 0;
  }

  protected evaluate(node: SyntaxNode): PythonValue {
    if (this.depth >= MOST_DEPTH) return this.disturb(node);
    this.depth += 1;
    const value = this.evaluated(node);
    this.depth -= 1;
    if (value === undefined || (typeof value === "string" && value.length > MOST_CHARACTERS))
      return this.disturb(node);
    if (isContainer(value) && !this.made.has(value)) this.made.set(value, this.lost);
    return value;
  }

  /** Undefined: it is not known how. */
  protected evaluated(node: SyntaxNode): PythonValue | undefined {
    switch (node.name) {
      case "Number":
        return this.number(this.source(node).replaceAll("_", ""));
      case "String":
        return this.string(this.source(node));
      case "FormatString":
      case "ContinuedString":
        return this.joined(node);
      case "Boolean":
        return this.source(node) === "True";
      case "None":
        return null;
      case "VariableName":
        return this.variable(node);
      case "ParenthesizedExpression": {
        const parts = partsOf(node);
        return parts.length === 1 ? this.evaluate(parts[0] as SyntaxNode) : undefined;
      }
      case "ArrayExpression":
      case "TupleExpression":
        return this.list(partsOf(node), node);
      case "DictionaryExpression":
        return this.dictionary(node);
      case "UnaryExpression":
        return this.unary(node);
      case "BinaryExpression":
        return this.binary(node);
      case "ConditionalExpression":
        return this.conditional(node);
      case "NamedExpression": {
        const [target, operator, value, ...more] = partsOf(node);
        if (target?.name !== "VariableName" || !operator || !value || more.length > 0) return undefined;
        const known = this.evaluate(value);
        this.values.set(this.nameOf(target), known);
        return known;
      }
      case "CallExpression":
        return this.call(node);
      case "MemberExpression": {
        const place = this.place(node);
        return place && Object.hasOwn(place.container, place.key)
          ? (place.container as Record<string | number, PythonValue>)[place.key]
          : undefined;
      }
      default:
        return undefined;
    }
  }

  protected number(text: string): number | undefined {
    const value = Number(text);
    const isInteger = /^(?:\d+|0[xob].*)$/i.test(text);
    if (!Number.isFinite(value) || (isInteger && (!Number.isSafeInteger(value) || /^0+[1-9]/.test(text))))
      return undefined;
    return value;
  }

  protected string(text: string): string | undefined {
    const [, prefix, , quoted] = /^([a-zA-Z]*)("""|'''|"|')([\s\S]*)\2$/.exec(text) ?? [];
    if (prefix === undefined || quoted === undefined || !/^[ru]?$/i.test(prefix)) return undefined;
    if (/r/i.test(prefix)) return quoted;
    let isKnown = true;
    const value = quoted.replace(/\\([\s\S])/g, (_whole, letter: string) => {
      const meant = Object.hasOwn(ESCAPES, letter) ? ESCAPES[letter] : undefined;
      if (meant === undefined) isKnown = false;
      return meant ?? "";
    });
    return isKnown ? value : undefined;
  }

  protected joined(node: SyntaxNode): string | undefined {
    // A text with fields in it names files and the like.
    if (node.name === "FormatString") return undefined;
    let text = "";
    for (const part of partsOf(node)) {
      const value = part.name === "String" ? this.string(this.nameOf(part)) : undefined;
      if (value === undefined) return undefined;
      text += value;
    }
    return text;
  }

  protected variable(node: SyntaxNode): PythonValue | undefined {
    const name = this.nameOf(node);
    if (this.functions.has(name) || POWERFUL.has(name)) this.functionsAreOut = true;
    const value = this.values.has(name) ? this.values.get(name) : this.lostAt;
    return isContainer(value) ? (this.whySpoilt(value) ?? value) : value;
  }

  protected list(parts: readonly SyntaxNode[], node: SyntaxNode): PythonValue {
    if (parts.some(({ name }) => name === "*" || name === "**")) return this.disturb(node);
    const values = parts.map((each) => this.evaluate(each));
    this.made.set(values, this.lost);
    return values;
  }

  /** Copies the entries of a dictionary that is known. */
  protected entriesOf(
    value: PythonValue,
    node: SyntaxNode,
  ): readonly (readonly [string, PythonValue])[] | undefined {
    if (!isContainer(value) || Array.isArray(value) || this.whySpoilt(value)) return undefined;
    this.count(value, node);
    return Object.entries(value);
  }

  protected dictionary(node: SyntaxNode): PythonValue | undefined {
    const parts = partsOf(node);
    const entries: (readonly [string, PythonValue])[] = [];
    for (let at = 0; at < parts.length; at += 1) {
      const first = parts[at] as SyntaxNode;
      if (first.name === "**") {
        const inner = parts[(at += 1)];
        const copied = inner && this.entriesOf(this.evaluate(inner), inner);
        if (!copied) return undefined;
        for (const each of copied) entries.push(each);
        continue;
      }
      const value = parts[at + 2];
      if (parts[at + 1]?.name !== ":" || !value) return undefined;
      const key = this.evaluate(first);
      // Other keys are not those of a section; 1 and "1" would be one here.
      if (typeof key !== "string") return undefined;
      entries.push([key, this.evaluate(value)]);
      at += 2;
    }
    return recordOf(entries);
  }

  protected level(node: SyntaxNode): number {
    switch (node.name) {
      case "BinaryExpression":
        return LEVELS[this.source(partsOf(node)[1] ?? node)] ?? COMPARISON;
      case "UnaryExpression":
        return this.source(partsOf(node)[0] ?? node) === "not" ? (LEVELS["not"] as number) : SIGN;
      case "ConditionalExpression":
      case "NamedExpression":
      case "LambdaExpression":
        return 0;
      default:
        return ALONE;
    }
  }

  protected unary(node: SyntaxNode): PythonValue | undefined {
    const [operator, operand, ...more] = partsOf(node);
    // The parser binds some operators otherwise than Python does.
    if (!operator || !operand || more.length > 0 || this.level(operand) < this.level(node)) return undefined;
    const value = this.evaluate(operand);
    const sign = this.source(operator);
    if (sign === "not") {
      const isTrue = this.truth(value, node);
      return isTrue === undefined ? undefined : !isTrue;
    }
    if (typeof value !== "number") return undefined;
    if (sign === "+") return value;
    return sign === "-" ? 0 - value : undefined;
  }

  /** Undefined: not known how. */
  protected combined(a: PythonValue, sign: string, b: PythonValue): PythonValue | undefined {
    if (typeof a === "string" && typeof b === "string")
      return sign === "+" && a.length + b.length <= MOST_CHARACTERS ? a + b : undefined;
    if (typeof a !== "number" || typeof b !== "number") return undefined;
    const result = arithmetic(a, sign, b);
    // Python's whole numbers have no end.
    if (
      result === undefined ||
      !Number.isFinite(result) ||
      (Number.isInteger(result) && !Number.isSafeInteger(result))
    )
      return undefined;
    return result === 0 ? 0 : result;
  }

  protected binary(node: SyntaxNode): PythonValue | undefined {
    const [left, operator, ...rest] = partsOf(node);
    const right = rest.at(-1);
    if (!left || !operator || !right) return undefined;
    const sign = this.text
      .slice(operator.from, rest.length > 1 ? (rest.at(-2) as SyntaxNode).to : operator.to)
      .replace(/\s+/g, " ");
    const level = this.level(node);
    const isPower = sign === "**";
    if (this.level(left) < (isPower ? ALONE : level) || this.level(right) < (isPower ? SIGN : level + 1))
      return undefined;
    const a = this.evaluate(left);
    if (sign === "and" || sign === "or") {
      const isTrue = this.truth(a, left);
      if (isTrue === undefined) return undefined;
      return isTrue === (sign === "and") ? this.evaluate(right) : a;
    }
    const compares = /^(?:[<>]=?|[=!]=|is|is not|in|not in)$/.test(sign);
    // a < b < c is a < b and b < c.
    if (
      compares &&
      left.name === "BinaryExpression" &&
      /^(?:CompareOp|is|in|not)$/.test(partsOf(left)[1]?.name ?? "")
    )
      return undefined;
    const b = this.evaluate(right);
    if (sign === "is" || sign === "is not") {
      if (a instanceof NeedsRun || (b !== null && typeof b !== "boolean")) return undefined;
      return (a === b) === (sign === "is");
    }
    if (!compares) return this.combined(a, sign, b);
    return comparison(a, sign, b);
  }

  protected conditional(node: SyntaxNode): PythonValue | undefined {
    const [yes, , test, , no] = partsOf(node);
    if (!yes || !test || !no) return undefined;
    const isTrue = this.truth(this.evaluate(test), test);
    return isTrue === undefined ? undefined : this.evaluate(isTrue ? yes : no);
  }

  /** The arguments as they are written: by place, by name, and dictionaries of names. */
  protected arguments(
    list: SyntaxNode | null,
  ): { readonly placed: PythonValue[]; readonly named: (readonly [string, PythonValue])[] } | undefined {
    const parts = list ? partsOf(list) : [];
    const placed: PythonValue[] = [];
    const named: (readonly [string, PythonValue])[] = [];
    for (let at = 0; at < parts.length; at += 1) {
      const part = parts[at] as SyntaxNode;
      const next = parts[at + 1];
      if (part.name === "*" || part.name === "for" || part.name === "async" || next?.name === "for")
        return undefined;
      if (part.name === "**") {
        const copied = next && this.entriesOf(this.evaluate(next), next);
        if (!copied) return undefined;
        for (const each of copied) named.push(each);
        at += 1;
      } else if (next?.name === "AssignOp") {
        const value = parts[at + 2];
        if (!value) return undefined;
        const known = this.evaluate(value);
        if (this.isWalrus(next)) {
          this.values.set(this.nameOf(part), known);
          placed.push(known);
        } else named.push([this.nameOf(part), known]);
        at += 2;
      } else placed.push(this.evaluate(part));
    }
    // One name twice is an error.
    return new Set(named.map(([name]) => name)).size === named.length ? { placed, named } : undefined;
  }

  /** Whether to call it ends Python. */
  protected isStop(callee: SyntaxNode): boolean {
    if (callee.name === "VariableName") {
      const name = this.nameOf(callee);
      const value = this.values.get(name);
      if (value !== undefined) return this.stops.get(name) === value;
      return (name === "exit" || name === "quit") && !this.functions.has(name);
    }
    const [module, of, name] = partsOf(callee);
    if (module?.name !== "VariableName" || of?.name !== "." || !name) return false;
    return /^(?:sys\.exit|os\.(?:_exit|abort))$/.test(`${this.moduleOf(module)}.${this.nameOf(name)}`);
  }

  /** What was imported under the name, where it is a module. */
  protected moduleOf(node: SyntaxNode): string {
    const name = this.nameOf(node);
    const value = this.values.get(name);
    const from = value instanceof NeedsRun ? value.expression : "";
    return new RegExp(`^import\\b.*?\\b(\\w+)\\s+as\\s+${name}\\b`, "s").exec(from)?.[1] ?? name;
  }

  /**
   * `dict(a=1)` is a record, `int(x)` and the like are numbers; types of other projects are records where
   * that is asked for.
   */
  protected call(node: SyntaxNode): PythonValue | undefined {
    const callee = node.firstChild as SyntaxNode;
    if (this.isStop(callee)) throw this.ended(node);
    if (callee.name !== "VariableName") return undefined;
    const name = this.nameOf(callee);
    const isImitated = this.imitated?.test(name) === true && !this.functions.has(name);
    const isBuiltin =
      !this.values.has(name) &&
      !this.functions.has(name) &&
      (HARMLESS.has(name) || /^(?:dict|int|float|min|max|abs)$/.test(name));
    if (!isImitated && !isBuiltin) return undefined;
    const given = this.arguments(node.getChild("ArgList"));
    if (!given) return undefined;
    const { placed, named } = given;
    if (isImitated) return placed.length === 0 ? recordOf(named) : undefined;
    if (HARMLESS.has(name)) return this.functionsAreOut ? undefined : this.unknown(node);
    if (name === "dict") {
      if (placed.length > 1) return undefined;
      const copied = placed.length === 0 ? [] : this.entriesOf(placed[0] as PythonValue, node);
      return copied && recordOf([...copied, ...named]);
    }
    const numbers = placed.filter((each) => typeof each === "number");
    if (numbers.length !== placed.length || named.length > 0) return undefined;
    const [first] = numbers;
    if (name === "min" || name === "max")
      return numbers.length < 2 ? undefined : numbers.reduce((a, b) => Math[name](a, b));
    if (numbers.length > 1) return undefined;
    if (name === "abs") return first === undefined ? undefined : Math.abs(first);
    const value = name === "int" ? Math.trunc(first ?? 0) : (first ?? 0);
    return name === "int" && !Number.isSafeInteger(value) ? undefined : value + 0;
  }
}
