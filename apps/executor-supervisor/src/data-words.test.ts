import type { Failure } from "@internevo/domain";
import { expect, it } from "vitest";
import { namingOwn, namingText } from "./data-words.ts";

const of = (path: string): Failure => ({
  code: "data-invalid",
  message: `token file ${path} has 18 tokens; it had 35 when /data/step-10 was written (data.path = "${path}")`,
  remedy: "put the data back",
});

it("names the texts of a job in place of the file of tokens that was made of them", () => {
  const made = "/var/lib/internevo/datasets/0f.tokens";
  expect(namingText(of(made), { format: "text", paths: ["/home/eve/a.txt"] }, { path: made })).toEqual({
    ...of(made),
    message:
      "the text of data.paths (/home/eve/a.txt) has 18 tokens; it had 35 when /data/step-10 was written",
  });
  const paths = ["/a", "/b", "/c", "/d", "/e"];
  expect(namingText(of(made), { format: "text", paths }, { path: made }).message).toMatch(
    /^the text of data\.paths \(\/a, \/b, \/c, 2 more files\) has/,
  );
});

it("leaves data that a job names by its own file as it is", () => {
  const own = "/home/eve/own.bin";
  for (const data of [{ format: "tokens", path: own } as const, null])
    expect(namingText(of(own), data, { path: own })).toEqual(of(own));
});

it("names the texts of the source of a mixture that is at fault", () => {
  const path = "/made/1.tokens";
  const data = {
    format: "mixture" as const,
    sources: [
      { format: "tokens" as const, path: "/own.bin", weight: 1 },
      { format: "text" as const, paths: ["/a.txt"], weight: 2 },
    ],
  };
  const read = {
    path: "/own.bin",
    sources: [
      { path: "/own.bin", share: 3333 },
      { path, share: 6667 },
    ],
  };
  const message = `token file ${path} has token 300 at byte 64 (data.sources.1.path = "${path}")`;
  expect(namingText({ ...of(path), message }, data, read).message).toBe(
    "the text of data.sources.1.paths (/a.txt) has token 300 at byte 64",
  );
  expect(namingText(of("/own.bin"), data, read)).toEqual(of("/own.bin"));
});

it("names the files of a job in place of those that ranks are given for them", () => {
  const links = "/var/lib/internevo/datasets/links/0a";
  const weights = "/var/lib/internevo/jobs/1/weights/0b";
  const spec = {
    data: { format: "internevo", path: "/home/eve/own.bin" },
    initialWeights: "/home/eve/weights",
  } as const;
  const given = { dataset: { path: `${links}/data.bin` }, weights };
  const failure: Failure = {
    code: "data-invalid",
    message: `${links}/data.bin.meta is not ${links}/data.bin's; ${weights}/config.json is another`,
    remedy: `give other weights than ${weights}, or copy them once more`,
  };
  expect(namingOwn(failure, spec, given)).toEqual({
    ...failure,
    message: "/home/eve/own.bin.meta is not /home/eve/own.bin's; /home/eve/weights/config.json is another",
    remedy: "give other weights than /home/eve/weights, or copy them once more",
  });
  const own = of("/home/eve/own.bin");
  expect(namingOwn(own, spec, { dataset: { path: "/home/eve/own.bin" } })).toEqual(own);
});
