/** What is used of the package, which has no types of its own. */
declare module "fast-levenshtein" {
  const levenshtein: { get(first: string, second: string): number };
  export default levenshtein;
}
