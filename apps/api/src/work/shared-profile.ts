import { createHash } from "node:crypto";
import type { Profile } from "@internevo/domain";

/**
 * A profile for other threads: its text is memory that all of them share, so that a task carries no copy of
 * it.
 */
export interface SharedProfile {
  /** Digest of the text: equal profiles have equal keys. */
  readonly key: string;
  readonly text: SharedArrayBuffer;
}

const shared = new WeakMap<Profile, SharedProfile>();
/** Texts that threads were given lately, by key. */
const MOST_TEXTS = 32;
const texts = new Map<string, SharedArrayBuffer>();
/** Profiles that a thread keeps; of one, what depends on nothing else is computed once. */
const MOST_KEPT = 8;
const kept = new Map<string, Profile>();

/** Puts what was used now behind everything else, and forgets what was used longest ago. */
function touch<Value>(map: Map<string, Value>, key: string, value: Value, most: number): void {
  map.delete(key);
  map.set(key, value);
  for (const oldest of map.keys()) {
    if (map.size <= most) break;
    map.delete(oldest);
  }
}

/** The profile as threads take it. A profile object is written once, however often it is asked for. */
export function shareProfile(profile: Profile): SharedProfile {
  const known = shared.get(profile);
  if (known) return known;
  const bytes = Buffer.from(JSON.stringify(profile));
  const key = createHash("sha256").update(bytes).digest("base64");
  let text = texts.get(key);
  if (text === undefined) {
    text = new SharedArrayBuffer(bytes.length);
    Buffer.from(text).set(bytes);
  }
  touch(texts, key, text, MOST_TEXTS);
  const made = { key, text };
  shared.set(profile, made);
  return made;
}

/** In a thread: the profile, the same object for the same content as long as it is kept. */
export function sharedProfile({ key, text }: SharedProfile): Profile {
  const profile = kept.get(key) ?? (JSON.parse(Buffer.from(text).toString("utf8")) as Profile);
  touch(kept, key, profile, MOST_KEPT);
  return profile;
}
