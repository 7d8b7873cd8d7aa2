import type { TakenAs } from "./framework.ts";

/** What a configuration leaves to its program, and is said to be taken as the program has it. */
export class LeftOut {
  readonly #program: string;
  readonly #takenAs: TakenAs[];

  constructor(program: string, takenAs: TakenAs[]) {
    this.#program = program;
    this.#takenAs = takenAs;
  }

  /** What is given, else the program's own default, which is said. */
  own<Value extends number | string>(given: Value | undefined, option: string, own: NoInfer<Value>): Value {
    if (given === undefined) this.#say(option, `${own}, ${this.#program}'s default`);
    return given ?? own;
  }

  /** What is given; where nothing is, it is said that the job's own value stands for it. */
  none<Value>(given: Value | undefined, option: string): Value | undefined {
    if (given === undefined) this.#say(option, `a job's own: ${this.#program} has no default`);
    return given;
  }

  #say(option: string, as: string): void {
    this.#takenAs.push({ option, value: "missing", as });
  }
}
