import { allPages, type InternEvoClient, type Page } from "@internevo/client";
import { nearestWord } from "@internevo/domain";
import type { Command } from "commander";
import type { Context } from "./context.ts";
import type { Colors } from "./output.ts";

type ListPage<T> = (cursor: { cursor?: string }) => Promise<Page<T>>;

/** Everything of a list, page after page. */
export const pages = <T>(list: ListPage<T>): AsyncIterable<T> =>
  allPages((cursor) => list(cursor === undefined ? {} : { cursor }));

export async function everyItem<T>(list: ListPage<T>): Promise<T[]> {
  const items: T[] = [];
  for await (const item of pages(list)) items.push(item);
  return items;
}

interface Listing<T> {
  readonly description: string;
  readonly list: (
    client: InternEvoClient,
    query: { cursor?: string; signal: AbortSignal },
  ) => Promise<Page<T>>;
  /** Said where there is nothing. */
  readonly none: string;
  /** Whether the table has rows of its own, and is shown where there is nothing too. */
  readonly showsNone?: boolean;
  readonly table: (items: readonly T[], colors: Colors) => string;
  /** An item as JSON has it; default: as the API does. */
  readonly documentOf?: (item: T) => unknown;
}

/**
 * Lists what a group is about, and stands for the group where no command of it is named: what it is given
 * then was meant for one.
 */
export function addList<T>(
  group: Command,
  context: Context,
  { description, list, none, showsNone = false, table, documentOf = (item) => item }: Listing<T>,
): void {
  group
    .command("list", { isDefault: true })
    .description(description)
    .allowExcessArguments()
    .action(async (_options: object, { args: [first] }: Command) => {
      if (first !== undefined) {
        const near = nearestWord(
          first,
          group.commands.map((command) => command.name()),
        );
        group.error(
          `error: unknown command '${first}'${near === undefined ? "" : `\n(Did you mean ${near}?)`}`,
          { code: "commander.unknownCommand" },
        );
      }
      const output = context.output();
      const client = await context.client();
      const items = await everyItem((cursor) => list(client, { signal: context.signal, ...cursor }));
      if (output.json) output.document(items.map(documentOf));
      else if (items.length === 0) output.note(none);
      if (!output.json && (items.length > 0 || showsNone)) output.data(table(items, output.colors));
    });
}
