import { expect, it } from "vitest";
import { DECODER_IGNORED, DECODER_OPTIONS, DECODER_REFUSED } from "./decoder-arguments.ts";
import { MORE_JUDGES, MORE_OPTIONS, MORE_REFUSED } from "./megatron-options.ts";

it("knows each of Megatron-LM's options once", () => {
  const names = [DECODER_OPTIONS, DECODER_IGNORED, MORE_OPTIONS].flatMap((of) =>
    Object.values(of).flatMap((text) => text.split(/\s+/)),
  );
  const all = [...names, ...Object.keys(DECODER_REFUSED), ...Object.keys(MORE_REFUSED)];
  expect(all.filter((name, at) => all.indexOf(name) !== at)).toEqual([]);
  expect(all.filter((name) => !/^--[\w-]+$/.test(name))).toEqual([]);
  // Only what is known is judged.
  expect(Object.keys(MORE_JUDGES).filter((name) => !names.includes(name))).toEqual([]);
});
