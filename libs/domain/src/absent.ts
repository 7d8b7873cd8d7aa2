/** What a file system says of a path at which nothing is: of one, too, that leads through a file. */
export const isAbsent = (error: unknown): boolean =>
  ["ENOENT", "ENOTDIR"].includes((error as { readonly code?: string }).code ?? "");

/** What was looked for in a file system; undefined for what is not there, or is no more. */
export async function ifThere<T>(look: () => Promise<T>): Promise<T | undefined> {
  try {
    return await look();
  } catch (error) {
    if (isAbsent(error)) return undefined;
    throw error;
  }
}
