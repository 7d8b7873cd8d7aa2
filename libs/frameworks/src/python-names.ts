import { ProblemError } from "@internevo/domain";
import type { SyntaxNode } from "@lezer/common";
import { MOST_DEPTH } from "./depth.ts";
import {
  childrenOf,
  isContainer,
  MOST_COPIED,
  MOST_SIZE,
  NeedsRun,
  recordOf,
  TOO_MUCH,
  type Container,
  type Known,
  type PythonValue,
} from "./python-values.ts";

/** Names and modules that reach the module's own variables from anywhere. */
export const POWERFUL: ReadonlySet<string> = new Set(
  "exec eval compile globals locals vars setattr delattr getattr __import__ __builtins__ __dict__ sys importlib inspect gc ctypes builtins __main__ runpy".split(
    " ",
  ),
);
/** Nodes that only read the names that are directly in them. */
const READS: ReadonlySet<string> = new Set([
  "CallExpression",
  "ArgList",
  "MemberExpression",
  "BinaryExpression",
  "UnaryExpression",
  "ConditionalExpression",
  "FormatReplacement",
  "DictionaryExpression",
]);

/**
 * The variables of a module. What is not followed makes each name and each list or dictionary that it
 * mentions unknown: it might bind the one and change the other.
 */
export class Names {
  protected readonly text: string;
  protected readonly imitated: RegExp | null;
  protected readonly values = new Map<string, PythonValue>();
  protected readonly spoilt = new WeakMap<object, NeedsRun>();
  /** How often everything had become unknown when a container was made. */
  protected readonly made = new WeakMap<object, number>();
  protected lost = 0;
  protected lostAt: NeedsRun | undefined;
  /** Functions and classes of the module: to call one may change any variable. */
  protected readonly functions = new Set<string>();
  protected functionsAreOut = false;
  /** Names under which `sys.exit` was imported. */
  protected readonly stops = new Map<string, NeedsRun>();
  /** Containers that something unknown holds too. */
  protected leaked: Container[] = [];
  protected readonly lineStarts: number[] = [0];
  protected depth = 0;
  protected copied = 0;

  /** @param imitated names of imported types whose calls with keywords are taken as records. */
  constructor(text: string, imitated: RegExp | null) {
    this.text = text.replace(/\r\n?/g, "\n");
    this.imitated = imitated;
    for (let at = this.text.indexOf("\n"); at >= 0; at = this.text.indexOf("\n", at + 1))
      this.lineStarts.push(at + 1);
  }

  protected source(node: SyntaxNode): string {
    return this.text.slice(node.from, node.to);
  }

  /** Python takes letters of other shapes as the same. */
  protected nameOf(node: SyntaxNode): string {
    return this.source(node).normalize("NFKC");
  }

  protected lineOf(at: number): number {
    let [low, high] = [0, this.lineStarts.length - 1];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if ((this.lineStarts[middle] as number) <= at) low = middle;
      else high = middle - 1;
    }
    return low + 1;
  }

  protected unknown(node: SyntaxNode): NeedsRun {
    return new NeedsRun(this.lineOf(node.from), this.source(node));
  }

  /** The module is refused for what stands there. */
  protected refusal(at: number, value: string, message: string, remedy: string): ProblemError {
    const field = `line ${this.lineOf(at)}`;
    return new ProblemError("bad-request", `${field} ${message}`, [
      { field, value: value.slice(0, 200), message, remedy },
    ]);
  }

  /** The module is over before its end. */
  protected ended(node: SyntaxNode): ProblemError {
    return this.refusal(
      node.from,
      this.source(node),
      "ends the module, and nothing behind it is run",
      "leave it out",
    );
  }

  /** Counts what is looked through: each line of a module may look through all that the others made. */
  protected count(container: Container, node: SyntaxNode): void {
    this.copied += childrenOf(container).length;
    if (this.copied > MOST_COPIED)
      throw this.refusal(
        node.from,
        this.source(node),
        `copies more than ${MOST_COPIED} entries, with what stands above`,
        "write the values once, where they are needed",
      );
  }

  /** The variable's value when the module has run; undefined when it has none. */
  valueOf(name: string): PythonValue | undefined {
    const value = this.values.has(name) ? this.values.get(name) : this.lostAt;
    return value === undefined ? undefined : this.known(value, 0).value;
  }

  protected readonly knowns = new Map<Container, Known | null>();

  /**
   * The value with what is unknown in it named; unknown where it holds itself, or is larger or deeper than
   * any configuration.
   */
  protected known(value: PythonValue, depth: number): Known {
    if (typeof value === "string") return { value, size: value.length + 1, depth: 0 };
    if (!isContainer(value)) return { value, size: 1, depth: 0 };
    const spoilt = this.whySpoilt(value);
    if (spoilt) return { value: spoilt, size: 1, depth: 0 };
    const before = this.knowns.get(value);
    if (before !== undefined) return before ?? TOO_MUCH;
    if (depth > MOST_DEPTH) return TOO_MUCH;
    this.knowns.set(value, null);
    const inner = childrenOf(value).map((each) => this.known(each, depth + 1));
    const found: Known = {
      value: Array.isArray(value)
        ? inner.map((each) => each.value)
        : recordOf(Object.keys(value).map((key, at) => [key, inner[at]?.value ?? null])),
      size: inner.reduce((sum, each) => sum + each.size, 1),
      depth: inner.reduce((most, each) => Math.max(most, each.depth), 0) + 1,
    };
    const result =
      found.size > MOST_SIZE || found.depth > MOST_DEPTH || inner.includes(TOO_MUCH) ? TOO_MUCH : found;
    this.knowns.set(value, result);
    return result;
  }

  protected whySpoilt(container: Container): NeedsRun | undefined {
    return (
      this.spoilt.get(container) ?? ((this.made.get(container) ?? 0) < this.lost ? this.lostAt : undefined)
    );
  }

  /** Something unknown may have changed the container and all in it. */
  protected spoil(value: PythonValue, why: NeedsRun): void {
    const left = [value];
    for (let each = left.pop(); each !== undefined; each = left.pop()) {
      if (!isContainer(each) || this.spoilt.has(each)) continue;
      this.spoilt.set(each, why);
      for (const child of childrenOf(each)) left.push(child);
    }
  }

  protected loseAll(why: NeedsRun): void {
    this.values.clear();
    this.lost += 1;
    this.lostAt = why;
  }

  /** Within brackets of a call, the parser tells `name := value` from `name=value` by its sign alone. */
  protected isWalrus(sign: SyntaxNode | null | undefined): boolean {
    return sign?.name === "AssignOp" && this.source(sign) === ":=";
  }

  /** The node is not followed: what it mentions is unknown from here on. */
  protected disturb(node: SyntaxNode, isStatement = false): NeedsRun {
    const why = this.unknown(node);
    for (const each of this.leaked.splice(0)) this.spoil(each, why);
    let losesAll = this.functionsAreOut;
    // Not by next(): at the end of what is nested deep it climbs up to the top once for every level.
    node.cursor().iterate((cursor) => {
      if (cursor.name === "ImportStatement" && cursor.node.getChild("*")) losesAll = true;
      if (cursor.name === "LambdaExpression") this.functionsAreOut = true;
      if (cursor.name === "FunctionDefinition" || cursor.name === "ClassDefinition") this.define(cursor.node);
      if (cursor.name !== "VariableName" && cursor.name !== "PropertyName") return;
      const name = this.text.slice(cursor.from, cursor.to).normalize("NFKC");
      if (POWERFUL.has(name) || (this.functions.has(name) && cursor.name === "VariableName"))
        losesAll = this.functionsAreOut = true;
      if (cursor.name !== "VariableName") return;
      const value = this.values.get(name);
      if (value !== undefined) this.spoil(value, why);
      const parent = cursor.node.parent;
      if (
        (isStatement && parent && !READS.has(parent.name)) ||
        (parent?.name === "NamedExpression" && parent.firstChild?.from === cursor.from) ||
        (parent?.name === "ArgList" && this.isWalrus(cursor.node.nextSibling))
      )
        this.values.set(name, why);
    });
    if (losesAll) this.loseAll(why);
    return why;
  }

  protected define(node: SyntaxNode): void {
    const name = node.getChild("VariableName");
    if (!name) return;
    this.functions.add(this.nameOf(name));
    this.values.set(this.nameOf(name), this.unknown(node));
  }
}
