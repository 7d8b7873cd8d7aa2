// Runs of the trainer's program on one GPU, for the sections that look at it as a whole.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "internevo/backend.h"
#include "trainer/config.h"
#include "trainer/support.h"

namespace internevo::check {

using Json = nlohmann::json;

/// What is left of a section's time. What does not come about in it is left out, and said to be.
class Budget {
 public:
  explicit Budget(double seconds) : seconds_(seconds) {}
  double seconds() const { return seconds_; }
  double spent() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  double left() const { return seconds_ - spent(); }

 private:
  const double seconds_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Of what a program wrote to a file; empty where it wrote nothing.
std::string lastLineOf(const std::string& path);

struct TrainerRun {
  int status = 0;  ///< of the program; 124 when its time was over
  std::vector<Json> events;
  std::string message;  ///< of its error, or what it wrote last on stderr

  const Json* named(const char* name) const;
  bool cutOff() const { return status == 124 || status == 137; }
  /// Median time of the steps after the first, which chooses algorithms and loads kernels; none where there is no second.
  std::optional<double> stepSeconds() const;
  int steps() const;
};

/// LLaMA-7B's layer (in small: one that a model of a device gets through), and the memory that plans are made for.
class TrainerRuns {
 public:
  TrainerRuns(Backend& device, bool small);

  bool small() const { return small_; }
  const trainer::ModelConfig& model() const { return model_; }
  /// Layers that the whole model has.
  std::int64_t wholeLayers() const { return model_.layers; }
  /// bf16, one sequence a step, AdamW; plans are refused above the GPU's memory.
  trainer::Config config(std::int64_t layers, std::int64_t sequence, bool recompute) const;
  /// Bytes of the plan's arena.
  static std::int64_t plannedBytes(const trainer::Config& config);
  /// The same with the context and the libraries of a run leaves so much of the memory.
  bool fits(const trainer::Config& config, std::int64_t spareBytes = 0) const { return plannedBytes(config) + runtimeBytes() + spareBytes <= limitBytes_; }
  /// The most layers, up to the whole model's, that fit at that length with some memory to spare; 0: none does.
  std::int64_t mostLayers(std::int64_t sequence, bool recompute) const;
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
  trainer::ModelConfig model_;
  std::int64_t limitBytes_ = 0, runtimeBytes_ = 0, takenBefore_ = 0;
  trainer::testing::TemporaryDirectory directory_;
};

/// Products of a step in 1e12 operations as model FLOPs utilisation counts them: three times forward's, the causal half of attention,
/// nothing for recomputation.
double modelTeraFlops(const trainer::ModelConfig& model, std::int64_t sequence);
/// Dense bfloat16 of the data sheet, TFLOP/s; none for a GPU that is not known.
std::optional<double> dataSheetTeraFlops(const std::string& device);

/// Of the trainer's program, each true unless something that should run does not.
bool checkStack(Backend& device, TrainerRuns& runs, Json* report);
bool checkPeer(TrainerRuns& runs, Json* report);
bool checkLongest(TrainerRuns& runs, Json* report);

}  // namespace internevo::check
