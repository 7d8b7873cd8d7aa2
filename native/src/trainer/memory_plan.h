// Bytes and offsets of everything that a rank keeps, before anything exists. The formulas are in MEMORY.md.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "internevo/backend.h"
#include "trainer/config.h"
#include "trainer/layout.h"

namespace internevo::trainer {

enum class MemoryLine {
  parameters, gradients, optimizerStates, activations, layerWorkspace, attentionWorkspace, logits, gatherPool,
  reduceStaging, allToAllStaging, ropeTables, dataBuffers,
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
  std::int64_t heads = 0, kvHeads = 0, headSize = 0;                  ///< heads inside attention on this rank
  std::int64_t headRows() const { return batch * sequence; }          ///< rows inside attention
  std::int64_t headQkvWidth() const { return (heads + 2 * kvHeads) * headSize; }
};
LocalShape localShape(const Config& config);

/// What the backward pass of one layer needs.
struct LayerPieces {
  Piece qkv;               ///< [batch·sequence, (heads + 2·kvHeads)·headSize], own heads
  Piece attentionHeads;    ///< [batch·sequence, heads·headSize], own heads
  Piece attentionTokens;   ///< [rows, H], own tokens; empty when sp = 1 (then attentionHeads is it)
  Piece logSumExp;         ///< float32 [batch, heads, sequence]
  Piece middle;            ///< [rows, H]: residual stream between attention and MLP
  Piece gateUp;            ///< [rows, 2·F]
};

struct WorkspacePieces {
  Piece norm, hidden, hiddenGradient;  ///< [rows, H]
  Piece inverseRms;                    ///< float32 [rows]
  Piece mlp, mlpGradient;              ///< [rows, F]; share memory with the three below
  Piece qkvGradient;                   ///< as LayerPieces::qkv
  Piece qkvTokens;                     ///< [rows, H + 2·W], own tokens; sp > 1
  Piece attentionGradientHeads;        ///< as LayerPieces::attentionHeads; sp > 1
};

struct MemoryPlan {
  std::array<std::int64_t, kMemoryLines> lines{};

  Piece parameters, gradients, firstMoment, secondMoment, master;
  std::vector<Piece> layerInputs;  ///< L + 1: the input of each layer and of the final norm; [rows, H]
  std::vector<LayerPieces> layers; ///< L of them, or 1 with recomputation
  WorkspacePieces workspace;
  Piece attentionWorkspace;
  Piece headWorkspace;             ///< logits and the scratch of every matrix product
  Piece gatherPool, unitGradient, reduceWorkspace, allToAllStaging, cosines, sines, tokens, targets;
  Piece checkpointStaging;         ///< float32: what this rank saves; empty when checkpoints are written in the step loop

  std::int64_t arenaBytes() const;
};

constexpr std::int64_t kLossChunkRows = 256;

MemoryPlan planMemory(const Config& config, const Layout& layout, const Backend& backend);

/// Bytes of the staging of a checkpoint: 12 · 64 · Σ ⌈U / (64·ps·oss·n)⌉ over the units, n = R/(ps·oss) replicas, each of
/// which saves its share; 0 without checkpoints.
std::int64_t stagingBytes(const Config& config, const Layout& layout);
/// Whether checkpoints are staged: as configured, else where the limit leaves room. The bytes are the largest of a rank.
bool stagesCheckpoint(const Config& config, std::int64_t arenaBytes, std::int64_t stagingBytes,
                      std::int64_t runtimeBytes);
/// Adds the staging to a plan.
void planCheckpointStaging(const Config& config, const Layout& layout, MemoryPlan* plan);

/// Refuses a plan whose peak is above the configuration's limit. Errors: Failure outOfMemory with every line.
void requireFits(const Config& config, const MemoryPlan& plan, std::int64_t runtimeBytes);

/// Resident bytes of this process now, and at its peak (VmRSS, VmHWM).
std::int64_t residentBytes();
std::int64_t residentPeakBytes();

}  // namespace internevo::trainer
