const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const opens = (code: number): boolean => code === 0x7b || code === 0x5b;
const closes = (code: number): boolean => code === 0x7d || code === 0x5d;

/**
 * Whether a JSON text nests more than so many levels; of a text that is no JSON, whatever a parser would meet
 * first.
 */
export function isNestedDeeper(text: string, levels: number): boolean {
  let depth = 0;
  let inText = false;
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (inText) {
      if (code === BACKSLASH) at += 1;
      else if (code === QUOTE) inText = false;
    } else if (code === QUOTE) inText = true;
    else if (opens(code)) {
      depth += 1;
      if (depth > levels) return true;
    } else if (closes(code)) depth -= 1;
  }
  return false;
}
