import { ProblemError } from "@internevo/domain";
import type { TokenOwner } from "@internevo/store";
import { countedAs } from "../work/caller.ts";

/** A token, whose it is, and where it has its role; null: in the whole installation. */
export type Reader = Pick<TokenOwner, "id" | "userId" | "project">;

/** So many projects have to fill their part before others find no room. */
const PROJECTS_THAT_FILL = 4;

export interface OpenAnswersOptions {
  /** What they are, in the plural: `event streams`. */
  readonly things: string;
  /** Open at once of one token, or of one person; more are refused. */
  readonly ofOne: number;
  /** Open at once of all tokens, a quarter of them of one project; more are refused. */
  readonly ofAll: number;
  /** What whoever has too many does. */
  readonly remedy: string;
}

/** Answers that last as long as their reader takes: so many are open at once, of one token, of a project and of all. */
export class OpenAnswers {
  /** Whose each is, by what ends it. */
  readonly #open = new Map<() => void, Reader>();
  readonly #options: OpenAnswersOptions;

  constructor(options: OpenAnswersOptions) {
    this.#options = options;
  }

  /**
   * Counts one more, until it has ended. @returns what ends it; calling it again does nothing
   * @throws ProblemError `rate-limited` where the token or its project has too many open, `unavailable` where all have
   */
  begin(reader: Reader): () => void {
    this.#assertRoom(reader);
    const end = (): void => void this.#open.delete(end);
    this.#open.set(end, reader);
    return end;
  }

  #assertRoom(reader: Reader): void {
    const { things, ofOne, ofAll } = this.#options;
    const { userId, project } = reader;
    const open = [...this.#open.values()];
    const own = open.filter((each) => countedAs(each) === countedAs(reader)).length;
    if (own >= ofOne) throw this.#tooMany(userId === null ? "this token has" : "your sessions have", own);
    const ofProject = open.filter((each) => each.project === project).length;
    if (project !== null && ofProject >= Math.ceil(ofAll / PROJECTS_THAT_FILL))
      throw this.#tooMany(`project ${project} has`, ofProject, ", as many as a project may");
    if (open.length >= ofAll)
      throw new ProblemError("unavailable", `too many ${things} are open; try again shortly`);
  }

  #tooMany(whose: string, count: number, more = ""): ProblemError {
    const { things, remedy } = this.#options;
    return new ProblemError("rate-limited", `${whose} ${count} ${things} open${more}; ${remedy}`, [
      { field: `(${things})`, value: count, message: "are as many as may be open at once", remedy },
    ]);
  }
}
