import type { Parameters } from "./shell-parameters.ts";

export interface Variable {
  readonly isArray: boolean;
  /** Null: not known here. */
  readonly words: readonly string[] | null;
}
const UNSET: Variable = { isArray: false, words: [] };
/** An array stays one, whatever is in it. */
export const forgotten = (variable: Variable | undefined): Variable => ({
  isArray: variable?.isArray ?? false,
  words: null,
});

/** What the commands of a script so far have made of its variables and parameters. */
export class ShellVariables {
  readonly #variables = new Map<string, Variable>();
  readonly #arrays = new Set<string>();
  /** Whether a command may have set any variable; those that were set since are known. */
  #isLost = false;
  #assignedInList: string[] = [];
  #parameters: Parameters = "caller's";
  #changesParameters = false;

  get parameters(): Parameters {
    return this.#parameters;
  }

  get(name: string): Variable | undefined {
    const variable = this.#variables.get(name);
    return variable ?? (this.#isLost ? { isArray: this.#arrays.has(name), words: null } : undefined);
  }

  set(name: string, variable: Variable): void {
    this.#variables.set(name, variable);
    if (variable.isArray) this.#arrays.add(name);
    this.#assignedInList.push(name);
  }

  unset(name: string): void {
    this.set(name, UNSET);
  }

  forget(name: string): void {
    this.set(name, forgotten(this.get(name)));
  }

  /** A command may have set any variable, and the parameters. */
  forgetAll(): void {
    this.#isLost = true;
    this.#variables.clear();
    this.setParameters("unknown", true);
  }

  setParameters(parameters: Parameters, isSure: boolean): void {
    if (parameters === this.#parameters) return;
    this.#parameters = isSure ? parameters : "unknown";
    this.#changesParameters = true;
  }

  /** What a list assigns that runs in the background may be assigned, or not. */
  endList(isInBackground: boolean): void {
    if (isInBackground) {
      for (const name of this.#assignedInList) this.#variables.set(name, forgotten(this.get(name)));
      if (this.#changesParameters) this.#parameters = "unknown";
    }
    this.#assignedInList = [];
    this.#changesParameters = false;
  }
}
