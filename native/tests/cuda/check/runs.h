// Runs of the trainer's program on one GPU, for the cases that look at it as a whole.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cuda/check/case.h"
#include "internevo/backend.h"
#include "trainer/config.h"
#include "trainer/support.h"

namespace internevo::check {

struct TrainerRun {
  int status = 0;  ///< of the program; 124 when its time was over
  std::vector<Json> events;
  std::string message;  ///< of its error, or what it wrote last on stderr

  const Json* named(const char* name) const;
  bool cutOff() const { return status == 124; }
  /// Median time of the steps after the first, which chooses algorithms and loads kernels; none where there is no second.
  std::optional<double> stepSeconds() const;
  int steps() const;
};

/// LLaMA-7B's layer (in small: one that a model of a device gets through), and the memory that plans are made for.
class TrainerRuns {
 public:
  /// `work`: where the first run's answer is kept for other cases.
  TrainerRuns(Backend& device, bool small, std::string work);

  bool small() const { return small_; }
  const trainer::ModelConfig& model() const { return model_; }
  /// Layers that the whole model has.
  std::int64_t wholeLayers() const { return model_.layers; }
  /// bf16, one sequence a step, AdamW; plans are refused above the GPU's memory.
  trainer::Config config(std::int64_t layers, std::int64_t sequence, bool recompute) const;
  /// Bytes of the plan's arena.
  static std::int64_t plannedBytes(const trainer::Config& config);
  /// The same with the context and the libraries of a run leaves so much of the memory.
  bool fits(const trainer::Config& config, std::int64_t spareBytes = 0) const {
    return plannedBytes(config) + runtimeBytes() + spareBytes <= limitBytes_;
  }
  /// The layers of a run and how many of them are recomputed.
  struct Fitted {
    std::int64_t layers = 0, recomputed = 0;
  };
  /// As many layers as fit, `most` at most (0: the whole model's), and as few of them recomputed. layers 0: none fits.
  Fitted fitted(std::int64_t sequence, std::int64_t microBatches, std::int64_t most = 0) const;
  static void recompute(trainer::Config* config, std::int64_t layers);
  std::int64_t limitBytes() const { return limitBytes_; }
  /// As a run told of it, with what this process has taken of the GPU's memory since.
  std::int64_t runtimeBytes() const { return runtimeBytes_ + takenBytes() - takenBefore_; }
  void setLimit(std::int64_t bytes) { limitBytes_ = bytes; }

  /// Learns what a run takes beside its arena, from one of a single layer. False with *message where it fails.
  bool start(std::string* message);
  TrainerRun run(trainer::Config config, std::int64_t steps, double limitSeconds);

 private:
  std::int64_t takenBytes() const { return device_.memory().occupancy().takenBytes; }

  Backend& device_;
  const bool small_;
  const std::string work_;
  trainer::ModelConfig model_;
  std::int64_t limitBytes_ = 0, runtimeBytes_ = 0, takenBefore_ = 0;
  trainer::testing::TemporaryDirectory directory_;
};

/// Products of a step in 1e12 operations as model FLOPs utilisation counts them: three times forward's, the causal half of attention,
/// nothing for recomputation.
double modelTeraFlops(const trainer::ModelConfig& model, std::int64_t sequence);
/// Dense bfloat16 of the data sheet, TFLOP/s; none for a GPU that is not known.
std::optional<double> dataSheetTeraFlops(const std::string& device);

}  // namespace internevo::check
