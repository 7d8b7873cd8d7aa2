import { randomUUID } from "node:crypto";
import type { JobFile } from "@internevo/domain";
import { stringify } from "yaml";

/** Items of a list that the library writes. */
const SHORT_LIST = 10;

/** Text that YAML reads as itself without quotes: paths as they mostly are. */
const PLAIN = /^\/[\w./-]*$/;

/** JSON's way to write a value is one of YAML's. */
const itemOf = (value: unknown): string =>
  typeof value === "string" && PLAIN.test(value) ? value : JSON.stringify(value);

const isLongList = (value: unknown): value is readonly unknown[] =>
  Array.isArray(value) && value.length > SHORT_LIST && value.every((item) => typeof item !== "object");

/**
 * A job file as YAML. Long lists of texts and numbers are written here, a line an item: the library takes a tenth of
 * a second for ten thousand paths, since it looks at each for whatever else it could be read as.
 */
export function jobYaml(file: JobFile): string {
  const lists: (readonly unknown[])[] = [];
  // No text of the job is equal to it.
  const mark = randomUUID();
  const short = JSON.parse(
    JSON.stringify(file, (_, value: unknown) =>
      isLongList(value) ? `${mark} ${lists.push(value) - 1}` : value,
    ),
  ) as JobFile;
  return stringify(short).replaceAll(
    new RegExp(`^( *)((?:- )?)(\\w+): ${mark} (\\d+)$`, "gm"),
    (_, indent: string, dash: string, name: string, place: string) => {
      const under = `\n${indent}${" ".repeat(dash.length)}  - `;
      return `${indent}${dash}${name}:${(lists[Number(place)] ?? []).map((item) => under + itemOf(item)).join("")}`;
    },
  );
}
