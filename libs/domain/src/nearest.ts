import levenshtein from "fast-levenshtein";

/** Edits that a slip of the hand makes at most. */
const MOST_EDITS = 3;
/** A beginning so long is meant for what it begins. */
const BEGINNING = 4;

/** What people and other programs write for fields, in lower case and without signs. */
const OTHER_WORDS: Readonly<Record<string, readonly string[]>> = {
  peakLearningRate: ["lr", "learningrate", "maxlr", "maxlearningrate", "peaklr"],
  minLearningRate: ["minlr"],
  warmupSteps: ["warmup", "warmupiters", "lrwarmup"],
  sequenceLengthTokens: ["seqlength", "seqlen", "contextlength", "maxseqlen"],
  globalBatchTokens: ["batchsize", "batch", "globalbatch", "globalbatchsize"],
  steps: ["maxsteps", "trainsteps", "trainiters", "iterations"],
  vocabularySize: ["vocab", "vocabsize"],
};

/** `sequence_length` and `SequenceLength` are one word to whoever writes them. */
const plain = (word: string): string => word.toLowerCase().replaceAll(/[^\p{L}\p{N}]/gu, "");

/** Whether two neighbours have changed places, and nothing else differs. */
function isSwapped(word: string, known: string): boolean {
  if (word.length !== known.length) return false;
  const at = [...word].findIndex((letter, index) => letter !== known[index]);
  const swapped = word.slice(0, at) + word.charAt(at + 1) + word.charAt(at) + word.slice(at + 2);
  return at >= 0 && swapped === known;
}

function distanceOf(word: string, known: string): number | undefined {
  if (isSwapped(word, known)) return 1;
  const longer = Math.max(word.length, known.length);
  // Told by the lengths first: a word from outside may be of any.
  if (Math.abs(word.length - known.length) <= MOST_EDITS) {
    const edits = levenshtein.get(word, known);
    if (edits <= MOST_EDITS && 2 * edits <= longer && edits < known.length) return edits;
  }
  return word.length >= BEGINNING && known.startsWith(word) ? MOST_EDITS + 1 : undefined;
}

/**
 * The known word that an unknown one is most likely a slip of, or the beginning of; undefined when none is
 * near.
 */
export function nearestWord(word: string, known: readonly string[]): string | undefined {
  const written = plain(word);
  const other = known.find((one) => Object.hasOwn(OTHER_WORDS, one) && OTHER_WORDS[one]?.includes(written));
  if (other !== undefined) return other;
  const near = known.flatMap((one) => {
    const distance = distanceOf(written, plain(one));
    return distance === undefined ? [] : [{ one, distance }];
  });
  return near.length === 0
    ? undefined
    : near.reduce((best, next) => (next.distance < best.distance ? next : best)).one;
}

/** Begins a remedy for an unknown word: `did you mean llama-7b? Otherwise `; empty when none is near. */
export function didYouMean(word: string, known: readonly string[]): string {
  const near = nearestWord(word, known);
  return near === undefined ? "" : `did you mean ${near}? Otherwise `;
}
