import { expect, it } from "vitest";
import { isWithinWindow, thresholdNote } from "./workload.ts";

const at = (time: string): Date => new Date(`2026-11-27T${time}:00Z`);

it.each([
  ["09:00", "17:00", "UTC", "09:00", true],
  ["09:00", "17:00", "UTC", "17:00", false],
  ["09:00", "17:00", "UTC", "08:59", false],
  ["22:00", "06:00", "UTC", "23:30", true],
  ["22:00", "06:00", "UTC", "05:59", true],
  ["22:00", "06:00", "UTC", "06:00", false],
  ["22:00", "06:00", "UTC", "12:00", false],
  ["00:00", "00:00", "UTC", "12:00", true],
  // An hour ahead in winter; half past five ahead in Kolkata.
  ["22:00", "06:00", "Europe/Berlin", "21:00", true],
  ["22:00", "06:00", "Europe/Berlin", "05:30", false],
  ["22:00", "06:00", "Asia/Kolkata", "16:30", true],
  ["22:00", "06:00", "Asia/Kolkata", "16:29", false],
])("a window from %s to %s in %s is open at %s UTC: %s", (from, to, zone, time, isOpen) => {
  expect(isWithinWindow({ from, to }, zone, at(time))).toBe(isOpen);
});

it("is open at any time where there is none", () => {
  expect(isWithinWindow(null, "UTC", at("03:00"))).toBe(true);
});

it("tells of a threshold that its policy cannot keep to", () => {
  expect(thresholdNote({ policy: "apply", gainThreshold: 0.02 })).toBe(
    "The threshold of 2.0% is less than a run can show. Two starts of one plan may differ by 4.9%, so a run " +
      "goes back from what gains less, and the proposal waits for an answer as tried.",
  );
  expect(thresholdNote({ policy: "apply", gainThreshold: 0.05 })).toBeUndefined();
  expect(thresholdNote({ policy: "try", gainThreshold: 0.02 })).toBeUndefined();
});
