import { Command } from "commander";
import { expect, it } from "vitest";
import { addSettings, settingsOf, type SettingOptions } from "./replan-settings.ts";

const settings = (...args: string[]) =>
  settingsOf(
    addSettings(new Command())
      .parse(["node", "test", ...args])
      .opts<SettingOptions>(),
  );

it("reads a window, and takes it away", () => {
  expect(settings("--window", "22:00-06:00")).toEqual({ changeWindow: { from: "22:00", to: "06:00" } });
  expect(settings("--window", "always")).toEqual({ changeWindow: null });
  expect(settings()).toEqual({});
});

it("reads the gain that a plan must have as 5% and as 0.05", () => {
  for (const text of ["5%", "0.05"])
    expect(settings("--gain-threshold", text)).toEqual({ gainThreshold: 0.05 });
});

it.each(["25:00-06:00", "22:00", "22:00-06:00-07:00", "", "22:0-06:00"])("%j is no window", (text) => {
  expect(() => settings("--window", text)).toThrow(`--window ${text} is no window`);
});
