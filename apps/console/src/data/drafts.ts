const key = (page: string): string => `internevo.draft.${page}`;

/** Storage that a browser may refuse: a draft is then forgotten with its page, and nothing else changes. */
function storage<T>(use: (storage: Storage) => T): T | undefined {
  try {
    return use(localStorage);
  } catch {
    return undefined;
  }
}

/** The text that somebody was writing on a page; empty when nobody was. */
export const readDraft = (page: string): string => storage((store) => store.getItem(key(page))) ?? "";

export const keepDraft = (page: string, text: string): void =>
  void storage((store) => (text === "" ? store.removeItem(key(page)) : store.setItem(key(page), text)));
