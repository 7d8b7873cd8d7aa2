// Bytes and offsets of everything that a rank keeps, before anything exists. The formulas are in MEMORY.md.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/ring_attention.h"
#include "executor_sizes/executor_sizes.h"
#include "internevo/backend.h"
#include "trainer/config.h"
#include "trainer/layout.h"

namespace internevo::trainer {

enum class MemoryLine {
  parameters,
  gradients,
  optimizerStates,
  activations,
  offloadStaging,
  layerWorkspace,
  attentionWorkspace,
  logits,
  gatherPool,
  reduceStaging,
  allToAllStaging,
  contextStaging,
  tensorParallelStaging,
  pipelineBuffers,
  ropeTables,
  dataBuffers,
  checkpointStaging,
  count
};
constexpr int kMemoryLines = static_cast<int>(MemoryLine::count);
const char* memoryLineName(MemoryLine line);

/// A planned piece of the arena.
struct Piece {
  std::int64_t offset = 0, bytes = 0;
};

/// Sizes of a micro-batch on one rank.
struct LocalShape {
  std::int64_t batch = 0, sequence = 0, localSequence = 0, rows = 0;  ///< rows = batch · localSequence
  std::int64_t attentionSequence = 0;                 ///< tokens of a sequence inside attention: S/c
  std::int64_t heads = 0, kvHeads = 0, headSize = 0;  ///< heads inside attention on this rank
  // What the products of a layer see on this rank: with tensor parallelism all tokens of its part of the width,
  // otherwise own tokens of the whole width.
  std::int64_t blockRows = 0, queryWidth = 0, kvWidth = 0, ffnWidth = 0;
  std::int64_t positionRows = 0;  ///< rows whose heads are turned by their positions
  std::int64_t headRows() const { return batch * attentionSequence; }  ///< rows inside attention
  std::int64_t headQkvWidth() const { return (heads + 2 * kvHeads) * headSize; }
};
LocalShape localShape(const Config& config);
/// Ring attention of this rank's heads; strides are those of the values in attention.
RingAttentionShape ringShape(const Config& config);

/// Values of a layer's program by their place in it; those that are elsewhere, or that the plan does not have, are empty.
using ValuePieces = std::vector<Piece>;

/// What a chunk keeps of one micro-batch between its forward and its backward pass.
struct SlotPieces {
  std::vector<Piece> inputs;   ///< of each layer of the chunk; [rows, H]
  std::vector<int> layerSets;  ///< index in MemoryPlan::layers of each layer's; recomputed layers share one
  Piece output;                ///< of the last layer of the model, for the head; empty elsewhere
};

/// A piece as people see it. `uses`: when in a step it is in use, where pieces share memory; else empty.
struct NamedPiece {
  std::string name;
  MemoryLine line = MemoryLine::parameters;
  Piece piece;
  std::vector<std::string> uses;
};

struct MemoryPlan {
  std::array<std::int64_t, kMemoryLines> lines{};

  Piece parameters, gradients, firstMoment, secondMoment, master;
  std::vector<std::vector<SlotPieces>> slots;  ///< [chunk][micro-batch mod the most in flight]
  std::vector<ValuePieces> layers;             ///< what is kept of a layer for its backward pass
  ValuePieces workspace;                       ///< of every layer; values of different blocks share memory
  /// What is kept of a layer in the host's memory. On the device two places take turns, of one block of all such values each.
  struct Offload {
    ValuePieces values;           ///< offsets in a block; empty where they are not in the host's memory
    std::int64_t blockBytes = 0;  ///< 0: the plan keeps nothing there
    std::array<Piece, sizes::offloadPlaces> places;  ///< in the arena
    std::vector<Piece> ofLayerSet;  ///< [index in `layers`] in the host's memory; empty of recomputed layers
    std::int64_t hostBytes = 0;     ///< of all of them, which is no memory of the device
  } offload;
  Piece attentionWorkspace;
  Piece headWorkspace;        ///< logits and the scratch of every matrix product
  Piece gatherPool;           ///< slots of the pool, one behind the other
  Piece unitGradient;         ///< slots of the gradient staging
  Piece reduceWorkspace;      ///< of the computing thread
  Piece laneReduceWorkspace;  ///< of the communication lane; empty where the plan does not overlap
  Piece allToAllStaging, cosines, sines;
  Piece ringStaging;                ///< ring attention; empty without context parallelism
  Piece positions;                  ///< int32 [positionRows]; context parallelism or packed documents
  Piece firstKeys, documentStarts;  ///< int32 [headRows], [documents of a sequence + 1]; packed documents
  Piece tokens, targets;            ///< int32 [blockRows]; empty on stages between the first and the last
  Piece block;                      ///< [b·S, H]: gathered input or partial output of a split block; tp > 1
  Piece gradientBlock;   ///< [b·S, H]: partial gradient of such an input, while that is gathered beside it
  Piece headStatistics;  ///< float64 [tp, chunk rows, kHeadStatistics]; tp > 1, last stage
  Piece sendForward, receiveForward, sendBackward,
      receiveBackward;  ///< [rows, H]; empty where nothing passes
  Piece
      checkpointStaging;  ///< float32: what this rank saves; empty when checkpoints are written in the step loop

  std::vector<NamedPiece> pieces;  ///< all of the above that are not empty, by offset

  std::int64_t arenaBytes() const;
};

/// The plan of the ranks at the layout's position.
MemoryPlan planMemory(const Config& config, const Layout& layout, const BackendSizes& backend);

/// The plans of all stages (tensor ranks of a stage need the same), and the place of the fullest.
struct StagePlans {
  std::vector<MemoryPlan> plans;
  int fullest = 0;
  void findFullest();
  const MemoryPlan& largest() const { return plans[static_cast<std::size_t>(fullest)]; }
};
StagePlans planStages(const Config& config, const BackendSizes& backend);
/// Adds the staging of checkpoints to every stage: 12 · 64 · Σ ⌈U / (64·ps·oss·n)⌉ bytes over the units, n = R/(ps·oss)
/// replicas, each of which saves its share. Nothing is added without checkpoints, when they are to be written in the step
/// loop, and, unless asked for, when no room is left under the limit.
void addCheckpointStaging(const Config& config, std::int64_t runtimeBytes, StagePlans* stages);

/// What the rank of any stage keeps in the host's memory at most, beside the arena.
std::int64_t hostBytesOf(const StagePlans& stages);

/// Bytes of the timeline's recorder, which stands outside the arena; 0 where none is asked for.
std::int64_t timelineBytes(const Config& config);

/// Device memory that the collectives' library takes for itself at the first calls of a run's groups, outside the arena: an upper bound
/// for the ranks of every stage. 0 on the CPU and for one rank.
std::int64_t communicatorBytes(const Config& config);

/// What stands outside the arena by plan: timeline and communicators.
std::int64_t besideArenaBytes(const Config& config);

/// Refuses a plan whose peak is above the configuration's limit. Errors: Failure outOfMemory with every line.
void requireFits(const Config& config, const MemoryPlan& plan, std::int64_t runtimeBytes);

/// Resident bytes of this process now, and at its peak (VmRSS, VmHWM).
std::int64_t residentBytes();
std::int64_t residentPeakBytes();

}  // namespace internevo::trainer
