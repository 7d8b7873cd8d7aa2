import type { ProblemError } from "@internevo/domain";
import type { NodeType, SyntaxNode, Tree } from "@lezer/common";
import { parser } from "@lezer/python";
import { Expressions } from "./python-expressions.ts";
import { POWERFUL } from "./python-names.ts";
import {
  isContainer,
  partsOf,
  recordOf,
  type Container,
  type PythonRecord,
  type PythonValue,
} from "./python-values.ts";

export { NeedsRun, type PythonRecord, type PythonValue } from "./python-values.ts";

const STRICT = parser.configure({ strict: true });

/** How deep within one another the targets of an assignment are looked for. */
const MOST_TARGETS = 10;

/** Follows the statements of a module that it knows to follow as Python does. */
class Evaluator extends Expressions {
  /** Ends at the first place that is not Python: to go on behind it takes long for each such place. */
  protected parsed(): Tree {
    try {
      return STRICT.parse(this.text);
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      throw this.isNotPython(Number(/\d+/.exec(error.message)?.[0] ?? 0));
    }
  }

  protected isNotPython(at: number): ProblemError {
    const line = this.text.split("\n")[this.lineOf(at) - 1] ?? "";
    return this.refusal(at, line, "is not Python", "mend the file");
  }

  /** @throws ProblemError `bad-request` where the text is not Python. */
  run(): void {
    const tree = this.parsed();
    const each = tree.cursor();
    do {
      // The parser gives up on what is nested some thousand levels deep, and its tree then lacks types.
      if ((each.type as NodeType | undefined)?.isError ?? true) throw this.isNotPython(each.from);
      if (each.name === "VariableName") this.note(each.node);
    } while (each.next());
    this.block(tree.topNode);
  }

  /** Names that statements assign, and names that the module reads. */
  readonly #assigned = new Set<string>();
  readonly #used = new Set<string>();
  /** Where the targets of an assignment end, by where it begins. */
  readonly #targetsEnd = new Map<number, number>();

  private note(node: SyntaxNode): void {
    let [inner, parent] = [node, node.parent];
    // A keyword of a call, a parameter and what is imported or defined are neither.
    if (parent?.name === "ArgList" && node.nextSibling?.name === "AssignOp") return;
    if (/^(?:ParamList|ImportStatement|FunctionDefinition|ClassDefinition)$/.test(parent?.name ?? "")) return;
    for (let depth = 0; depth < MOST_TARGETS; depth += 1) {
      if (!parent || !/^(?:Tuple|Array|Parenthesized)Expression$/.test(parent.name)) break;
      [inner, parent] = [parent, parent.parent];
    }
    const isTarget =
      parent?.name === "UpdateStatement"
        ? inner.prevSibling === null
        : parent?.name === "AssignStatement" && inner.from < this.targetsEnd(parent);
    (isTarget ? this.#assigned : this.#used).add(this.nameOf(node));
  }

  private targetsEnd(statement: SyntaxNode): number {
    const before = this.#targetsEnd.get(statement.from);
    if (before !== undefined) return before;
    const end = statement.getChildren("AssignOp").at(-1)?.from ?? statement.from;
    this.#targetsEnd.set(statement.from, end);
    return end;
  }

  /** Variables that the module has, and that nothing in it reads. */
  unused(): string[] {
    return [...this.#assigned].filter((name) => !this.#used.has(name) && this.values.has(name));
  }

  /** Whether a statement of the module assigns a name. */
  assigns(name: string): boolean {
    return this.#assigned.has(name);
  }

  protected block(node: SyntaxNode): void {
    for (let child = node.firstChild; child; child = child.nextSibling) this.statement(child);
  }

  protected statement(node: SyntaxNode): void {
    switch (node.name) {
      case "AssignStatement":
        return this.assignStatement(node);
      case "UpdateStatement":
        return this.update(node);
      case "ExpressionStatement":
        return void partsOf(node).map((each) => this.evaluate(each));
      case "StatementGroup":
        return this.block(node);
      case "IfStatement":
        return this.branch(node);
      case "DeleteStatement":
        return this.delete(node);
      case "ImportStatement":
        return this.import(node);
      case "FunctionDefinition": {
        const parameters = node.getChild("ParamList");
        if (parameters) this.disturb(parameters);
        return this.define(node);
      }
      case "RaiseStatement":
      case "ReturnStatement":
        throw this.ended(node);
      case "AssertStatement": {
        const [, test] = partsOf(node);
        if (test && this.truth(this.evaluate(test), test) === false) throw this.ended(node);
        return void this.disturb(node, true);
      }
      case ":":
      case ";":
      case "Comment":
      case "PassStatement":
      case "ScopeStatement":
        return;
      default: {
        const why = this.disturb(node, true);
        // A decorator is handed the function, and may call it.
        if (node.name === "DecoratedStatement") {
          this.functionsAreOut = true;
          this.loseAll(why);
        }
      }
    }
  }

  protected assignStatement(node: SyntaxNode): void {
    const sides: SyntaxNode[][] = [[]];
    let isTuple = false;
    const tuples: boolean[] = [];
    for (let child = node.firstChild; child; child = child.nextSibling) {
      if (child.name === "AssignOp") {
        tuples.push(isTuple);
        isTuple = false;
        sides.push([]);
      } else if (child.name === ",") isTuple = true;
      else if (child.name === "TypeDef") {
        // An annotation is evaluated too.
        if (/[(:]/.test(this.source(child).slice(1))) this.disturb(child);
      } else if (child.name !== "Comment") (sides.at(-1) as SyntaxNode[]).push(child);
    }
    tuples.push(isTuple);
    if (sides.length < 2) return;
    const right = sides.pop() as SyntaxNode[];
    const value =
      tuples.pop() === true || right.length !== 1
        ? this.list(right, node)
        : this.evaluate(right[0] as SyntaxNode);
    for (const [at, targets] of sides.entries())
      this.assignAll(targets, tuples[at] === true || targets.length !== 1, value, node);
  }

  protected assignAll(
    targets: readonly SyntaxNode[],
    isTuple: boolean,
    value: PythonValue,
    statement: SyntaxNode,
  ): void {
    const [only] = targets;
    if (!isTuple && only) return this.assign(only, value, statement);
    if (
      Array.isArray(value) &&
      !this.whySpoilt(value) &&
      value.length === targets.length &&
      targets.every(({ name }) => name !== "*")
    ) {
      const values = [...value];
      for (const [at, target] of targets.entries()) this.assign(target, values[at] as PythonValue, statement);
      return;
    }
    // What is unpacked is also in what it came from.
    if (isContainer(value)) this.spoil(value, this.unknown(statement));
    this.disturb(statement, true);
  }

  protected assign(target: SyntaxNode, value: PythonValue, statement: SyntaxNode): void {
    switch (target.name) {
      case "VariableName": {
        this.values.set(this.nameOf(target), value);
        return;
      }
      case "ParenthesizedExpression":
        return this.assignAll(partsOf(target), false, value, statement);
      case "TupleExpression":
      case "ArrayExpression":
        return this.assignAll(partsOf(target), true, value, statement);
      case "MemberExpression": {
        const place = this.place(target);
        if (place) {
          this.set(place.container, place.key, value);
          return;
        }
      }
    }
    this.disturb(target, target.name !== "MemberExpression");
    // Something unknown holds the value now; it changes with the next thing that is not followed.
    if (isContainer(value)) this.leaked.push(value);
  }

  protected set(container: Container, key: string | number, value: PythonValue): void {
    (container as Record<string | number, PythonValue>)[key] = value;
  }

  protected update(node: SyntaxNode): void {
    const [target, operator, operand, ...more] = partsOf(node);
    if (!target || !operator || !operand || more.length > 0) return void this.disturb(node, true);
    const sign = this.source(operator).slice(0, -1);
    if (target.name === "VariableName") {
      const name = this.nameOf(target);
      const before = this.evaluate(target);
      const value = this.evaluate(operand);
      // Lists and dictionaries are changed in place.
      const after =
        isContainer(before) || this.values.get(name) !== before
          ? undefined
          : this.combined(before, sign, value);
      if (after === undefined) this.disturb(node, true);
      else this.values.set(name, after);
      return;
    }
    const place = target.name === "MemberExpression" ? this.place(target) : undefined;
    if (!place) return void this.disturb(node);
    const before = (place.container as Record<string | number, PythonValue>)[place.key];
    const value = this.evaluate(operand);
    const after =
      before === undefined || isContainer(before) || this.whySpoilt(place.container)
        ? undefined
        : this.combined(before, sign, value);
    if (after === undefined) this.disturb(node);
    else this.set(place.container, place.key, after);
  }

  protected delete(node: SyntaxNode): void {
    const targets = partsOf(node).filter(({ name }) => name !== "del");
    if (!targets.every(({ name }) => name === "VariableName")) {
      for (const target of targets) {
        const place = target.name === "MemberExpression" ? this.place(target) : undefined;
        if (place && !Array.isArray(place.container) && Object.hasOwn(place.container, place.key))
          delete place.container[place.key];
        else return void this.disturb(node, true);
      }
      return;
    }
    for (const target of targets) this.values.delete(this.nameOf(target));
    // What was lost may have had the name; now nothing has it.
    if (this.lostAt) for (const target of targets) this.values.set(this.nameOf(target), this.unknown(node));
  }

  protected import(node: SyntaxNode): void {
    const why = this.unknown(node);
    const stop = /^from\s+sys\s+import\s+(?:exit\s+as\s+)?(\w+)$/.exec(this.source(node));
    if (stop && /\bexit\b/.test(stop[0])) this.stops.set(stop[1] as string, why);
    if (node.getChild("*")) return this.loseAll(why);
    for (const name of node.getChildren("VariableName")) {
      this.values.set(this.nameOf(name), why);
      if (POWERFUL.has(this.nameOf(name))) this.functionsAreOut = true;
    }
  }

  protected branch(node: SyntaxNode): void {
    for (let child = node.firstChild; child; child = child.nextSibling) {
      if (child.name === "else") {
        const body = child.nextSibling;
        return body ? this.block(body) : undefined;
      }
      if (child.name !== "if" && child.name !== "elif") continue;
      const test = child.nextSibling as SyntaxNode;
      const isTrue = this.truth(this.evaluate(test), test);
      if (isTrue === undefined) return void this.disturb(node, true);
      if (!isTrue) continue;
      const body = test.nextSibling;
      return body ? this.block(body) : undefined;
    }
  }
}

/**
 * Variables of a Python module, evaluated as far as that is done just as Python does; nothing is run. What
 * only running the module tells is a `NeedsRun`, alone or within a value.
 * @param names the variables that are asked for; what the module does not define is left out.
 * @param imitated names of imported types whose calls with keywords are taken as records.
 * @throws ProblemError `bad-request` where the text is not Python.
 */
export function pythonModule(
  text: string,
  names: readonly string[],
  imitated: RegExp | null = null,
): PythonRecord {
  const evaluator = new Evaluator(text, imitated);
  evaluator.run();
  return valuesOf(evaluator, names);
}

const valuesOf = (evaluator: Evaluator, names: readonly string[]): PythonRecord =>
  recordOf(
    names.flatMap((name) => {
      const value = evaluator.valueOf(name);
      return value === undefined ? [] : [[name, value] as const];
    }),
  );

/** A name that says by itself that it is the file's own, and no option. */
const isOwn = (name: string): boolean => name.startsWith("_") || name === name.toUpperCase();

/**
 * A module whose variables are options: those that are known, as {@link pythonModule} has them, and all others that
 * nothing in it reads. Names in capitals or with an underscore before them are the file's own.
 * @param harmless of `known`, those that are asked for only where the module assigns them
 * @throws ProblemError `bad-request` where the text is not Python.
 */
export function pythonOptions(
  text: string,
  known: readonly string[],
  harmless: readonly string[],
): PythonRecord {
  const evaluator = new Evaluator(text, null);
  evaluator.run();
  const asked = known.filter((name) => !harmless.includes(name) || evaluator.assigns(name));
  return valuesOf(evaluator, [...new Set([...asked, ...evaluator.unused().filter((name) => !isOwn(name))])]);
}
