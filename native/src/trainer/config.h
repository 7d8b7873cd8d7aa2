// What a run is asked to do. One JSON document; see README.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/disk_room.h"
#include "executor_sizes/executor_sizes.h"
#include "internevo/rope.h"
#include "internevo/tensor.h"
#include "trainer/data_source.h"
#include "trainer/watchdog_limits.h"

namespace internevo::trainer {

/// A LLaMA-style decoder. Sizes in elements.
struct ModelConfig {
  std::int64_t hiddenSize = 0, layers = 0, heads = 0, kvHeads = 0, ffnHiddenSize = 0, vocabularySize = 0;
  bool tiedEmbeddings = false;
  double ropeTheta = 10000, normEpsilon = 1e-5, initStandardDeviation = 0.02;

  std::int64_t givenHeadSize = 0;  ///< 0: hiddenSize / heads
  bool queryKeyNorm = false;       ///< an RMS norm of every head of q and k, before their positions
  bool queryKeyValueBias = false;  ///< of the three projections
  std::int64_t slidingWindowTokens =
      0;  ///< keys that a query sees at most, its own among them; 0: all before it
  RopeScaling ropeScaling;

  std::int64_t headSize() const { return givenHeadSize > 0 ? givenHeadSize : hiddenSize / heads; }
  std::int64_t queryWidth() const { return headSize() * heads; }
  std::int64_t kvWidth() const { return headSize() * kvHeads; }
  RopeFields ropeFields() const { return {headSize(), ropeTheta, 0, ropeScaling}; }
};

/// What is gathered ahead while a forward pass computes: nothing; the next block (attention or MLP); the next layer; the next module.
enum class ForwardOverlap { none, block, interLayer, intraLayer };
/// What communicates while a backward pass computes: nothing; blocks; modules (one product and what belongs to it).
enum class BackwardOverlap { none, block, intraLayer };

/// What becomes of the products of gate and up, the largest value of a layer: it is kept for the backward pass, made again there, or
/// kept in the host's memory.
enum class GateUp { kept, again, host };

/// S = [b, n, a, s_pp, s_dp, s_tp, s_sp, s_ps, s_gs, s_oss] of the paper (section "Search Space Analysis").
struct PlanConfig {
  std::int64_t microBatchSize = 1, microBatches = 1;
  bool recompute = false;
  int pipelineParallel = 1, dataParallel = 1, tensorParallel = 1, sequenceParallel = 1;
  /// Of the sequence ranks, this many share a sequence as a ring (context parallelism); the rest share the heads.
  int contextParallel = 1;
  int parameterSharding = 1, gradientSharding = 1, optimizerStateSharding = 1;
  /// Virtual stages of a pipeline stage (interleaved 1F1B); chunk c of stage s is virtual stage c·pp + s.
  int pipelineChunks = 1;
  /// Without `recompute`: this many layers, the first of each stage, are recomputed all the same.
  std::int64_t recomputeLayers = 0;
  /// Of the layers that are not recomputed whole.
  GateUp gateUp = GateUp::kept;

  /// Communication Scheduler (paper, section "Communication Scheduler", appendix "Selective Overlap").
  ForwardOverlap forwardOverlap = ForwardOverlap::none;
  BackwardOverlap backwardOverlap = BackwardOverlap::none;

  /// Parameters and gradients travel on a lane of their own.
  bool overlaps() const {
    return forwardOverlap != ForwardOverlap::none || backwardOverlap != BackwardOverlap::none;
  }
  /// The backward pass moves activations between tensor ranks beside the products that do not need them.
  bool overlapsActivations() const { return tensorParallel > 1 && backwardOverlap != BackwardOverlap::none; }
  /// Layers that a stage with so many recomputes.
  std::int64_t recomputedOf(std::int64_t stageLayers) const {
    return recompute || recomputeLayers > stageLayers ? stageLayers : recomputeLayers;
  }
  /// Neighbouring ranks that share the heads, by all-to-all (Ulysses, config 2) or by tensor parallelism.
  int headRanks() const { return sequenceParallel / contextParallel; }
  bool ulysses() const { return tensorParallel == 1 && headRanks() > 1; }
  /// R: ranks that hold the same slice of the model.
  int replicaRanks() const { return dataParallel * sequenceParallel / tensorParallel; }
  int worldSize() const { return pipelineParallel * dataParallel * sequenceParallel; }
  std::int64_t globalBatchSequences() const { return microBatchSize * microBatches * dataParallel; }
};

using Groups = std::vector<std::vector<int>>;

/// Ordered groups of ranks, one list per dimension; each list partitions all ranks. Made by the planner.
struct MeshConfig {
  int worldSize = 1;
  Groups sequenceParallel, dataParallel, tensorParallel, pipelineParallel;
  Groups parameterSharding, optimizerStateSharding, gradientReplicas;
};

/// How the learning rate goes on behind its warm-up; see schedule.h.
enum class LearningRateSchedule { cosine, linear, constant, warmupStableDecay };

struct OptimizerConfig {
  double peakLearningRate = 0, minLearningRate = 0;
  std::int64_t warmupSteps = 0, decaySteps = 1;
  double weightDecay = 0, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double clipGlobalNorm = 0;  ///< 0: no clipping
  LearningRateSchedule schedule = LearningRateSchedule::cosine;
  std::int64_t annealingSteps = 0;  ///< of warm-up-stable-decay
};

/// Automatic: asynchronous where the memory limit has room for the staging.
enum class CheckpointWriting { automatic, asynchronous, synchronous };

struct CheckpointConfig {
  std::string directory;
  std::int64_t everySteps = 1, keepLast = 1;
  bool resumeLatest = false;
  CheckpointWriting writing = CheckpointWriting::automatic;
  bool stopOnFailure = false;  ///< else a checkpoint that cannot be written is reported, and training goes on
};

/// Held-out data that is evaluated before the first step, every so many steps and after the last: its first `batches` global batches,
/// in the order of the file. Packing is the training data's: memory and kernels are planned for it.
struct ValidationConfig {
  DataConfig data;
  std::int64_t everySteps = 1, batches = 1;
};

/// The measured timeline of some steps; see timeline.h.
struct TimelineConfig {
  std::string path;
  std::int64_t firstStep = 1, steps = 1, capacityEvents = sizes::timelineEvents;
};

/// What runs the operators.
enum class DeviceKind { cpu, cuda };

struct Config {
  ModelConfig model;
  std::int64_t sequenceLengthTokens = 0;
  DataType precision = DataType::float32;  ///< storage of parameters and activations
  DataType gradientPrecision =
      DataType::float32;  ///< of gradients of parameters, and of their sums over ranks
  PlanConfig plan;
  MeshConfig mesh;
  OptimizerConfig optimizer;
  DataConfig data;
  std::uint64_t seed = 0;
  std::int64_t steps = 1;
  std::optional<ValidationConfig> validation;
  std::optional<CheckpointConfig> checkpoint;
  /// Hugging Face folder or directory of a checkpoint: the weights to begin with, unless a checkpoint is resumed.
  std::optional<std::string> initialWeightsPath;
  std::optional<std::int64_t> memoryLimitBytes;
  DeviceKind device = DeviceKind::cpu;
  int threadsPerRank = 1;
  bool deterministic = true;  ///< every run is; kept so that a backend that is faster without may ask
  DiskMargin leaveFree;       ///< of the file systems that checkpoints and timelines are written to
  std::optional<std::string> gradientDumpPath;
  std::optional<TimelineConfig> timeline;
  std::optional<WatchdogLimits> watchdog = WatchdogLimits{};  ///< none: a lost rank is left to mpirun

  bool packsDocuments() const { return data.packing == DataConfig::Packing::documents; }
  /// Rows do not follow one another from the first of a sequence: their rotary positions are a list.
  bool listsPositions() const { return packsDocuments() || plan.contextParallel > 1; }
  bool bf16() const { return precision == DataType::bfloat16; }
  /// As a document names it.
  const char* precisionName() const;
};

/// Reads and checks a document: types, ranges, unknown members. Errors: Failure badConfig naming field, value, remedy.
Config parseConfig(const std::string& text);
/// The same for a file. Errors: badConfig also when it cannot be read.
Config loadConfig(const std::string& path);

/// Whether the model can run under the plan, and the mesh has the plan's shape. Errors: Failure badConfig (sizes that do not
/// divide, a mesh without the plan's shape), planUnsupported (what this executor does not do).
void validatePlan(const Config& config);
/// The same without the mesh: model, sequence length and plan.
void validateFactors(const Config& config);

/// The plan of such a text. Errors: Failure badConfig.
PlanConfig parsePlan(const std::string& text);
/// The document's text of a configuration's plan, as the manifest of a checkpoint keeps it.
std::string planJson(const PlanConfig& plan);
/// The same of a model.
ModelConfig parseModel(const std::string& text);
std::string modelJson(const ModelConfig& model);

}  // namespace internevo::trainer
