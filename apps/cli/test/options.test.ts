import type { Command } from "commander";
import { expect, it } from "vitest";
import type { Context } from "../src/context.ts";
import { commandLine } from "../src/run.ts";

it("no command has an option that the program has: the program takes it wherever it stands", () => {
  const streams = { stdout: process.stdout, stderr: process.stderr, env: {} };
  const program = commandLine(streams, false, {} as Context);
  const namesOf = ({ options }: Command): string[] =>
    options.flatMap(({ short, long }) => [short, long].filter((name) => typeof name === "string"));
  const taken = new Set(namesOf(program));
  expect(taken).toContain("--url");
  const collisions = (command: Command, path: string): string[] => [
    ...namesOf(command)
      .filter((name) => taken.has(name))
      .map((name) => `${path} ${name}`),
    ...command.commands.flatMap((child) => collisions(child, `${path} ${child.name()}`)),
  ];
  expect(program.commands.flatMap((command) => collisions(command, command.name()))).toEqual([]);
});
