import sizes from "../../../native/src/executor_sizes/executor_sizes.json" with { type: "json" };
import { Type, type Static } from "typebox";
import { MAXIMUM_RANKS, MAXIMUM_SEQUENCE_TOKENS } from "./bounds.ts";

/** Queries and keys that the executor's attention computes together: a tile that no query sees is left out. */
export const ATTENTION_TILE_TOKENS = sizes.attentionTile;

const Ratio = (description: string) => Type.Number({ minimum: 0, maximum: 1, description });

/**
 * What packed documents leave of attention, counted in the sequences of a job's data as the trainer cuts them.
 * Work is in tiles that the kernel computes (native/src/backend/cpu/attention.h), relative to those of one
 * document as long as the sequence, on one rank.
 */
export const PackedDocumentsSchema = Type.Object(
  {
    sequenceLengthTokens: Type.Integer({ minimum: 1, maximum: MAXIMUM_SEQUENCE_TOKENS }),
    slidingWindowTokens: Type.Optional(
      Type.Integer({ minimum: 1, description: "window of the model that the sequences were counted with" }),
    ),
    sequences: Type.Integer({ minimum: 1, description: "sequences that were counted, spread over the data" }),
    meanDocuments: Type.Number({ minimum: 1, description: "documents of a sequence on average" }),
    keysShare: Ratio("keys that a query sees, of those that it sees in one document, on average"),
    rings: Type.Array(
      Type.Object(
        {
          ranks: Type.Integer({ minimum: 1, maximum: MAXIMUM_RANKS }),
          work: Ratio("of a rank on average"),
          deviation: Ratio("standard deviation of the work between the ranks and sequences"),
          most: Ratio("of the rank and sequence that have most"),
          firstTurn: Ratio("part of the work that is in the first turn of the ring"),
        },
        { additionalProperties: false },
      ),
      {
        minItems: 1,
        description: "by ranks that share a sequence as a ring, ascending; 1: each has it whole",
      },
    ),
  },
  { additionalProperties: false },
);
export type PackedDocuments = Static<typeof PackedDocumentsSchema>;
