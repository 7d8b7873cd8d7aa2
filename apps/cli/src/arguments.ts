import { nearestWord } from "@internevo/domain";
import { InvalidArgumentError, type Command } from "commander";

/** An option's value as an integer within bounds. */
export const integerArgument =
  (minimum: number, maximum: number) =>
  (text: string): number => {
    const value = Number(text);
    if (!/^-?\d+$/.test(text.trim()) || !Number.isSafeInteger(value) || value < minimum || value > maximum) throw new InvalidArgumentError(`give an integer from ${minimum} to ${maximum}.`);
    return value;
  };

export const numberArgument =
  (minimum: number, maximum: number) =>
  (text: string): number => {
    const value = Number(text);
    if (text.trim() === "" || !Number.isFinite(value) || value < minimum || value > maximum) throw new InvalidArgumentError(`give a number from ${minimum} to ${maximum}.`);
    return value;
  };

/** Lists what a group is about, and stands for the group where no command of it is named: what it is given then was meant for one. */
export function addList(group: Command, description: string, action: () => Promise<void>): void {
  group
    .command("list", { isDefault: true })
    .description(description)
    .allowExcessArguments()
    .action(async (_options: object, { args: [first] }: Command) => {
      if (first === undefined) return action();
      const near = nearestWord(first, group.commands.map((command) => command.name()));
      group.error(`error: unknown command '${first}'${near === undefined ? "" : `\n(Did you mean ${near}?)`}`, { code: "commander.unknownCommand" });
    });
}
