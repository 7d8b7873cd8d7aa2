import type { Failure } from "@internevo/domain";
import { expect, it } from "vitest";
import { namingText } from "./data-words.ts";

const of = (path: string): Failure => ({
  code: "data-invalid",
  message: `token file ${path} has 18 tokens; it had 35 when /data/step-10 was written (data.path = "${path}")`,
  remedy: "put the data back",
});

it("names the texts of a job in place of the file of tokens that was made of them", () => {
  const made = "/var/lib/internevo/datasets/0f.tokens";
  expect(namingText(of(made), { format: "text", paths: ["/home/eve/a.txt"] }, made)).toEqual({
    ...of(made),
    message:
      "the text of data.paths (/home/eve/a.txt) has 18 tokens; it had 35 when /data/step-10 was written",
  });
  const paths = ["/a", "/b", "/c", "/d", "/e"];
  expect(namingText(of(made), { format: "text", paths }, made).message).toMatch(
    /^the text of data\.paths \(\/a, \/b, \/c, 2 more files\) has/,
  );
});

it("leaves data that a job names by its own file as it is", () => {
  const own = "/home/eve/own.bin";
  for (const data of [{ format: "tokens", path: own } as const, null])
    expect(namingText(of(own), data, own)).toEqual(of(own));
});
