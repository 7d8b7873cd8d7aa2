import { expect, it } from "vitest";
import { capacityWords } from "./cluster-state.ts";

const nothing = { nodes: null, ranks: null, gpus: null, memoryBytes: null };

it.each([
  ["2 nodes, up to 8 ranks, 8 GPUs, 64.0 GiB", { nodes: 2, ranks: 8, gpus: 8, memoryBytes: 2 ** 36 }],
  ["1 node, up to 1,024 ranks", { ...nothing, nodes: 1, ranks: 1024, gpus: 0 }],
  ["not known", nothing],
])("says %s", (words, capacity) => expect(capacityWords(capacity)).toBe(words));
