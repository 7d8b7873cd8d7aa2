/**
 * Reads what a build prints, line by line, and tells of ninja's `[12/95] …` every tenth of the way: all of
 * them are too many to read, and none for minutes looks like a program that hangs. What comes from a cache is
 * printed once more, and is no progress.
 */
export function buildProgress(tell) {
  let told = 0;
  let cached = false;
  return (line) => {
    if (/^> nx run .*\[.*cache/.test(line)) cached = true;
    const [, done, total] = /^\[(\d+)\/(\d+)\] /.exec(line) ?? [];
    if (cached || done === undefined) return;
    const tenths = Math.floor((10 * Number(done)) / Number(total));
    if (tenths > told) tell(`${10 * tenths}% (${done} of ${total})`);
    told = Math.max(told, tenths);
  };
}
