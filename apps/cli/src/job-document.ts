import { ProblemError, syntaxFault, type ParserError } from "@internevo/domain";
import {
  CST,
  isAlias,
  isMap,
  isPair,
  isScalar,
  isSeq,
  Lexer,
  LineCounter,
  parseDocument,
  type Document,
  type Node,
} from "yaml";

/** A job is three deep; what is far deeper is a mistake, and would exhaust the stack of whoever reads it. */
const MAXIMUM_DEPTH = 64;
const MAXIMUM_ALIASES = 100;

const TOO_DEEP = `is nested more than ${MAXIMUM_DEPTH} deep`;
const FLATTEN = "write the job with fewer levels; see the examples";

/** Looks for nesting before the text is parsed: the parser's time grows with its square. */
function assertShallow(
  content: string,
  refuse: (field: string, message: string, remedy: string) => never,
): void {
  let line = 1;
  let flow = 0;
  let inLine = 0;
  for (const token of new Lexer().lex(content)) {
    const type = CST.tokenType(token);
    if (type === "flow-map-start" || type === "flow-seq-start") flow += 1;
    else if (type === "flow-map-end" || type === "flow-seq-end") flow -= 1;
    else if (type === "seq-item-ind" || type === "explicit-key-ind") inLine += 1;
    else if (type === "newline") {
      line += 1;
      inLine = 0;
    }
    if (flow > MAXIMUM_DEPTH || inLine > MAXIMUM_DEPTH) refuse(`line ${line}`, TOO_DEEP, FLATTEN);
  }
}

/**
 * Refuses what YAML can write and a job cannot be: what holds itself, names nothing, is no finite number, or
 * is too deep.
 */
function assertPlain(
  document: Document,
  placeOf: (node: Node) => string,
  refuse: (field: string, message: string, remedy: string) => never,
  refuseTwice: (key: Node) => never,
): void {
  const walk = (node: unknown, path: readonly string[], above: readonly unknown[]): void => {
    const field = path.length === 0 ? "(whole document)" : path.join(".");
    if (isScalar(node)) {
      if (typeof node.value === "number" && !Number.isFinite(node.value))
        refuse(
          field,
          `is ${node.value}, which is no number to train with (${placeOf(node)})`,
          "give a finite number",
        );
      return;
    }
    if (isAlias(node)) {
      const meant = node.resolve(document);
      if (meant === undefined)
        refuse(
          field,
          `is an alias of *${node.source}, which names nothing above it (${placeOf(node)})`,
          `write &${node.source} at what is meant, or the value itself`,
        );
      if (above.includes(meant))
        refuse(field, `holds itself, by *${node.source} (${placeOf(node)})`, "write the value itself");
      return;
    }
    if (!isMap(node) && !isSeq(node)) return;
    if (above.length >= MAXIMUM_DEPTH) refuse(field, `${TOO_DEEP} (${placeOf(node)})`, FLATTEN);
    const inside = [...above, node];
    const keys = new Set<unknown>();
    for (const [index, item] of node.items.entries()) {
      if (!isPair(item)) {
        walk(item, [...path, String(index)], inside);
        continue;
      }
      const key: unknown = item.key;
      if (isMap(key) || isSeq(key) || isAlias(key))
        refuse(
          "(field name)",
          `is a list, an object or an alias (${placeOf(key)})`,
          "write the field's name as text",
        );
      if (isScalar(key)) {
        if (keys.has(key.value)) refuseTwice(key);
        keys.add(key.value);
      }
      walk(item.value, [...path, isScalar(key) ? String(key.value) : "(field name)"], inside);
    }
  };
  walk(document.contents, [], []);
}

/**
 * The value of a job file.
 * @param name of the file, for errors.
 * @throws ProblemError `job-invalid` when it is neither YAML nor JSON, or more than a tree of finite values.
 */
export function parseJobDocument(content: string, name: string): unknown {
  const refuse = (field: string, message: string, remedy: string): never => {
    throw new ProblemError("job-invalid", `${name} is not a job file: ${field} ${message}`, [
      { field, message, remedy },
    ]);
  };
  assertShallow(content, refuse);
  const lines = new LineCounter();
  const document = parseDocument(content, {
    prettyErrors: false,
    lineCounter: lines,
    logLevel: "error",
    // The parser compares each key with all before it: `assertPlain` looks for those that come twice.
    uniqueKeys: false,
  });
  const refuseSyntax = (error: ParserError): never => {
    const { line, message, remedy, excerpt } =
      error.code === "RESOURCE_EXHAUSTION"
        ? { line: undefined, message: TOO_DEEP, remedy: FLATTEN, excerpt: undefined }
        : syntaxFault(error, content);
    throw new ProblemError("job-invalid", `${name} is neither YAML nor JSON`, [
      {
        field: line === undefined ? "job" : `line ${line}`,
        message,
        remedy,
        ...(excerpt === undefined ? {} : { excerpt }),
      },
    ]);
  };
  const [error] = document.errors;
  if (error) refuseSyntax(error);
  const placeOf = (node: Node): string => {
    const { line, col } = lines.linePos(node.range?.[0] ?? 0);
    return `line ${line}, column ${col}`;
  };
  assertPlain(document, placeOf, refuse, ({ range }) => {
    const [start, end] = range ?? [0, 0];
    return refuseSyntax({ code: "DUPLICATE_KEY", message: "", pos: [start, end] });
  });
  try {
    return document.toJS({ maxAliasCount: MAXIMUM_ALIASES }) as unknown;
  } catch (thrown) {
    // The one error that is left: aliases of aliases.
    if (!(thrown instanceof ReferenceError)) throw thrown;
    return refuse(
      "job",
      `uses more than ${MAXIMUM_ALIASES} aliases, alias by alias`,
      "write the values themselves",
    );
  }
}
