import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

/** Everything that is built: the page, and whatever it and its scripts name. */
export async function builtFiles(url: string): Promise<ReadonlyMap<string, string>> {
  const files = new Map<string, string>();
  const read = async (name: string): Promise<void> => {
    if (files.has(name)) return;
    files.set(name, "");
    const reply = await fetch(`${url}/${name}`);
    if (!reply.ok) throw new Error(`${name}: ${reply.status}`);
    const text = await reply.text();
    files.set(name, text);
    await Promise.all(
      [...text.matchAll(/[\w-]+-[\w-]{8}\.(?:js|css)(?=["'`])/g)].map(([found]) => read(`assets/${found}`)),
    );
  };
  await read("");
  return files;
}

const classesIn = (text: string): Set<string> =>
  new Set([...text.matchAll(/\bm_[0-9a-f]{6,}\b/g)].map(([name]) => name));

/**
 * Classes of Mantine's components that scripts name and Mantine has styles for, but that are not among the
 * styles that are built.
 */
export function missingStyles(files: ReadonlyMap<string, string>): string[] {
  const all = classesIn(
    readFileSync(createRequire(import.meta.url).resolve("@mantine/core/styles.css"), "utf8"),
  );
  const textOf = (extension: string): string =>
    [...files]
      .filter(([name]) => name.endsWith(extension))
      .map(([, text]) => text)
      .join("\n");
  const built = classesIn(textOf(".css"));
  return [...classesIn(textOf(".js"))].filter((name) => all.has(name) && !built.has(name));
}
