import { syntaxFault, type SyntaxFault } from "@internevo/domain";
import { LineCounter, parseDocument, type Document } from "yaml";

/** A job as pasted: YAML, of which JSON is a part. */
export interface JobDocument {
  readonly value: unknown;
  /** The line, from 1, that a field stands in; of a missing field, the line of what should hold it. */
  readonly lineOf: (field: string) => number | undefined;
}

const whole = (message: string, remedy: string): SyntaxFault => ({
  line: 1,
  message,
  remedy,
  excerpt: undefined,
});

/** Reads a pasted job. */
export function readJobDocument(
  text: string,
): { readonly document: JobDocument } | { readonly faults: readonly SyntaxFault[] } {
  const lines = new LineCounter();
  const parsed: Document = parseDocument(text, { lineCounter: lines, prettyErrors: false });
  if (parsed.errors.length > 0) {
    // One mistake is often several errors: those behind the first say nothing new.
    return { faults: parsed.errors.slice(0, 1).map((error) => syntaxFault(error, text)) };
  }
  const lineOf = (field: string): number | undefined => {
    const path = field.split(".");
    for (let length = path.length; length > 0; length -= 1) {
      const node: unknown = parsed.getIn(
        path.slice(0, length).map((part) => (/^\d+$/.test(part) ? Number(part) : part)),
        true,
      );
      const range = (node as { range?: [number, number, number] | null } | undefined)?.range;
      if (range) return lines.linePos(range[0]).line;
    }
    return undefined;
  };
  let value: unknown;
  try {
    value = parsed.toJS({ maxAliasCount: 100 });
  } catch (error) {
    return {
      faults: [
        whole(
          `leads to: ${error instanceof Error ? error.message : String(error)}`,
          "Write the values themselves",
        ),
      ],
    };
  }
  if (typeof value !== "object" || value === null || Array.isArray(value))
    return {
      faults: [
        whole(
          "is no field, and a job is made of fields",
          "Begin with the example, or with a field such as `name: first`",
        ),
      ],
    };
  return { document: { value, lineOf } };
}
