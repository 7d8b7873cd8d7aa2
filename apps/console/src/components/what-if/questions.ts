import type {
  CheapestClusterAnswer,
  LargestSequenceAnswer,
  ParetoAnswer,
  SweepAnswer,
  SweptAxis,
} from "@internevo/contracts";

export const QUESTIONS = [
  { value: "sweep", label: "The best plan along an axis" },
  { value: "largest", label: "The longest sequence" },
  { value: "pareto", label: "Time against memory" },
  { value: "cluster", label: "The cheapest cluster" },
] as const;
export type QuestionKind = (typeof QUESTIONS)[number]["value"];

export const AXIS_WORDS: Readonly<
  Record<SweptAxis, { readonly name: string; readonly unit: string; readonly about: string }>
> = {
  sequence: { name: "Sequence length", unit: "tokens", about: "tokens; k is 1,024" },
  nodes: { name: "Nodes", unit: "nodes", about: "nodes of the cluster" },
  batch: { name: "Batch", unit: "tokens a step", about: "tokens of a step; M is 1,048,576" },
  memory: { name: "Memory of a GPU", unit: "of a GPU", about: "bytes, with a unit" },
  "intra-node-bandwidth": {
    name: "Bandwidth inside a node",
    unit: "of the measured",
    about: "factors of what was measured",
  },
  "inter-node-bandwidth": {
    name: "Bandwidth between nodes",
    unit: "of the measured",
    about: "factors of what was measured",
  },
  "compute-speed": {
    name: "Speed of computation",
    unit: "of the measured",
    about: "factors of what was measured",
  },
};

/** What was asked, beside what is answered: the form may have gone on. */
export type Outcome =
  | { readonly kind: "sweep"; readonly answer: SweepAnswer }
  | { readonly kind: "largest"; readonly answer: LargestSequenceAnswer }
  | { readonly kind: "pareto"; readonly answer: ParetoAnswer }
  | { readonly kind: "cluster"; readonly answer: CheapestClusterAnswer; readonly seconds: number };
