import type { FieldChange } from "@internevo/contracts";
import { Code } from "@mantine/core";
import { fieldName, fieldValue } from "../../text/words.ts";

/** Fields in which two plans differ. */
export function Changes({ label, changes }: { label: string; changes: readonly FieldChange[] }) {
  return (
    <div className="changes">
      <span className="changes-label">{label}</span>
      <ul aria-label={label}>
        {changes.map(({ field, from, to }) => (
          <li key={field}>
            {fieldName(field)} <Code>{fieldValue(field, from)}</Code> → <Code>{fieldValue(field, to)}</Code>
          </li>
        ))}
      </ul>
    </div>
  );
}
