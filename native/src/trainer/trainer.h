// One rank of a training run: owns its memory, communicators, data and model; executes optimizer steps.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/agreement.h"
#include "trainer/evaluation.h"
#include "trainer/model.h"
#include "trainer/token_file.h"

namespace internevo::trainer {

struct StepResult {
  std::int64_t step = 0;  ///< 1-based
  double loss = 0;        ///< mean over the real tokens of the global batch
  double gradientNorm = 0, learningRate = 0;
  /// Real tokens of the global batch: those whose target is counted. All, or with packed documents all but the last of
  /// each document.
  std::int64_t tokens = 0;
  /// Of this rank. The step is computing, exposed communication (the computing thread communicates, or waits for the
  /// communication lane) and, where there are stages, waiting for a neighbour's activations or gradients (the bubble).
  /// communicationSeconds is all communication but the bubble, also what ran beside the computing thread.
  double stepTimeSeconds = 0, communicationSeconds = 0, exposedCommunicationSeconds = 0, bubbleSeconds = 0;
};

class Trainer {
 public:
  /// Makes groups, memory and data ready; weights are not set yet. `rank` is the caller's in the mesh, `ranks` maps
  /// the mesh to MPI_COMM_WORLD. The configuration must have passed validatePlan. Collective over the mesh.
  /// Errors: AgreedFailure outOfMemory (with the lines), dataError; Failure communicationError.
  /// What the rank does is told to `activity`, which must outlive the trainer; null: to nobody.
  Trainer(const Config& config, int rank, const std::vector<int>& ranks, Activity* activity = nullptr);

  void initializeWeights() { parameters_->initialize(); }

  /// One optimizer step. Collective. Errors: AgreedFailure dataError (a token outside the vocabulary), notFinite (a
  /// loss that is not finite: nothing is updated); Failure communicationError.
  StepResult step(std::int64_t number);
  /// The loss of the weights on the held-out data of the configuration, which must have such, between two steps. It uses memory of a
  /// step, and leaves everything that a step reads as it was. None when a rank's `stop` became true: it ends behind the batch in
  /// progress. `done`: told of every batch, how many were evaluated. Collective. Errors: AgreedFailure dataError, notFinite (a loss
  /// that is not finite); Failure communicationError.
  std::optional<Evaluation> evaluate(const std::atomic<bool>& stop,
                                     const std::function<void(std::int64_t)>& done = {});
  /// Of a device: waits until it has done what it was given, and gives what `activity` recorded its times.
  void settleActivity();

  enum class Quantity { gradient, weights, firstMoment, secondMoment };
  /// A unit of the whole model (of Layout::whole) [elements] put together from all ranks, on every rank; for tests and
  /// dumps. Collective. The gradient is that of the last step, before clipping.
  std::vector<float> collect(int unit, Quantity quantity);
  /// Safetensors file of every logical tensor's gradient of the last step and its loss (rank 0 writes). Collective.
  void dumpGradients(const std::string& path, double loss);

  /// From any thread: whatever of a device's waits for other ranks ends, with an error. Nothing can be trained after it.
  void abandon() noexcept {
    if (DeviceGroups* const groups = backend_->groups(); groups != nullptr) groups->abort();
  }

  /// Largest of a value over the ranks. Collective.
  std::int64_t maximum(std::int64_t value);
  Workspace reduceWorkspace() const { return reduceWorkspace_; }
  /// Where a checkpoint is copied to before it is written; empty when it is written in the step loop.
  View checkpointStaging() const { return checkpointStaging_; }
  /// Of a device: what copies there beside the next step; null: a copy is made at once.
  BackgroundCopies* checkpointCopies() const { return checkpointCopies_.get(); }
  MemorySpace& memory() { return backend_->memory(); }

  const Config& config() const { return config_; }
  const Layout& layout() const { return layout_; }  ///< of this rank's position
  const Layout& wholeLayout() const { return whole_; }
  const MemoryPlan& memoryPlan() const { return stagePlans_.largest(); }  ///< of the fullest stage
  ParameterStore& parameters() { return *parameters_; }
  GroupSet& groups() { return groups_; }
  const TrainingData& data() const { return data_; }
  int rank() const { return rank_; }
  /// Who computes the matrix products; empty where there is one way to.
  const ProductChoices& products() const { return products_; }
  std::int64_t runtimeBytes() const { return runtimeBytes_; }  ///< the largest over the ranks
  std::int64_t plannedPeakBytes() const {
    return memoryPlan().arenaBytes() + besideArenaBytes(config_) + runtimeBytes_;
  }  ///< of the fullest rank
  /// Largest of any rank, in the host's memory.
  std::int64_t hostBytes() const { return hostBytesOf(stagePlans_); }
  std::int64_t peakMemoryBytes() const {
    return alignUp(arena_.highWaterBytes(), kAlignmentBytes) + besideArenaBytes(config_) + runtimeBytes_;
  }

 private:
  std::vector<float> ownShardOf(const std::string& unitName, Quantity quantity, std::int64_t elements);
  std::int64_t checkData(std::int64_t step);
  /// Calls read(microBatch) for all that this rank needs of a global batch. Returns the real tokens of all of it.
  template <typename Read>
  std::int64_t checkBatch(const Read& read);
  std::int64_t checkValidationData(std::int64_t batch);
  /// The sum of the losses of a batch's real tokens, the same on all ranks.
  ExactSum evaluateBatch(std::int64_t batch);
  LargestOfRanks largestOfRanks();
  void chooseProducts(std::int64_t arenaBytes);

  const Config config_;
  const int rank_;
  const Layout layout_, whole_;
  std::unique_ptr<Backend> backend_;
  Activity unwatched_{0};
  GroupSet groups_;
  /// By which operations of a device are timed.
  struct DeviceClock {
    Activity* activity = nullptr;
    std::unique_ptr<Moments> moments;
    ~DeviceClock() {
      if (moments) static_cast<void>(activity->timeBy(nullptr));
    }
  } deviceClock_;
  double besideSeconds_ =
      0;  ///< by that clock, of communication beside the computing stream; since the beginning
  StagePlans stagePlans_;
  std::int64_t runtimeBytes_ = 0;
  Arena arena_;
  ProductChoices products_;
  TrainingData data_;
  TokenFile validationData_;
  std::int64_t realTokens_ = 0;  ///< of this rank's part of the global batch
  Workspace reduceWorkspace_;    ///< of `world`, in the program's memory
  std::vector<std::byte> hostScratch_;
  View checkpointStaging_;  ///< in the program's memory
  std::unique_ptr<BackgroundCopies> checkpointCopies_;
  std::unique_ptr<ParameterStore> parameters_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<BatchReader> reader_;
};

// ---- of a batch ----------------------------------------------------------------------------------------------------

template <typename Read>
std::int64_t Trainer::checkBatch(const Read& read) {
  const PlanConfig& p = config_.plan;
  realTokens_ = 0;
  const auto readAll = [&] {
    if (!layout_.hasEmbedding() && !layout_.hasHead() && !config_.packsDocuments()) return;
    for (std::int64_t m = p.microBatches - 1; m >= 0; --m) {
      read(m);
      if (config_.packsDocuments()) realTokens_ += reader_->realTokens();
    }
  };
  agree(groups_.world, reduceWorkspace_, std::ref(readAll));  // a copy of the captures would be allocated
  if (!config_.packsDocuments()) return p.globalBatchSequences() * config_.sequenceLengthTokens;
  // Every token counts once: tensor ranks read the same ones, and so do the stages at both ends.
  std::int64_t count = layout_.hasHead() && groups_.tensor.index() == 0 ? realTokens_ : 0;
  const Exposed exposed(groups_, "all-reduce real tokens");
  require(groups_.world.allReduce({&count, DataType::int64}, 1, ReduceOperation::sum, reduceWorkspace_));
  return count;
}

}  // namespace internevo::trainer
