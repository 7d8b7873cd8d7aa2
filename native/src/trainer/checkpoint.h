// Checkpoints of a run: DIRECTORY/step-<N>/ with one safetensors file a rank and manifest.json, which is written last.
// A directory appears under its final name only when everything in it is on the disk. They load under any plan.
//
// The step loop copies what a rank saves into planned staging memory; a thread writes it while training goes on. Of a
// device it has that copied, to pinned memory, beside the next step, whose update waits for it. A staging buffer rather
// than a forked snapshot: a fork of a process that uses MPI and threads is not safe, cannot be had of a GPU's memory, and
// its copy-on-write copies are memory that nobody planned: all of the optimizer's within one step.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "internevo/lane.h"
#include "trainer/held.h"
#include "trainer/trainer.h"

namespace internevo::trainer {

struct CheckpointResult {
  std::string path;
  std::int64_t step = 0;
  std::int64_t bytes = 0;   ///< of all files
  double seconds = 0;       ///< from the begin until it was in place
  double stallSeconds = 0;  ///< that the step loop of this rank stood still for it
};

/// Writes the checkpoints of one run, one at a time. Every rank makes the same calls at the same places.
class CheckpointWriter {
 public:
  /// The configuration must have a checkpoint.
  explicit CheckpointWriter(Trainer& trainer);
  ~CheckpointWriter();  ///< waits for this rank's thread; what is not in place by then is a left-over

  /// Begins a checkpoint of the weights (float32), moments, data position and seed after `step` steps. The former one
  /// must be finished. Collective. Without staging memory it is written before this returns.
  void begin(std::int64_t step);

  /// What the ranks compare (largest of all) once a step: whether the work in hand is done, and who failed.
  std::int64_t word() const;
  /// Moves on by the largest word of all ranks; does not wait. True when there is something to take().
  bool advance(std::int64_t largestWord);
  /// Waits until the checkpoint in hand is in place or has failed. True when there is something to take(). Collective.
  bool finish();
  bool idle() const { return phase_ == Phase::idle; }

  /// How the last one ended, on every rank: in place, or why not. `failure` is an AgreedFailure checkpointError naming
  /// the file, or the checkpoint where it would not leave the margin free as a whole; for a full disk also the bytes that it
  /// needs and those that are free.
  struct Outcome {
    CheckpointResult result;
    std::optional<AgreedFailure> failure;
  };
  Outcome take();

 private:
  enum class Phase { idle, writing, publishing };
  void submit(std::function<void()> work);
  std::int64_t askForRoom();
  void writeShard();
  void publish();
  void copyToStaging();
  const float* sourceOf(const HeldPart& part, int holds);

  Trainer& trainer_;
  const CheckpointConfig config_;
  const std::vector<HeldPart> parts_;
  View staging_;  ///< [3][elements of parts_]; empty: written from where they are
  std::int64_t partElements_ = 0;
  Manifest manifest_;  ///< all but step and files
  Phase phase_ = Phase::idle;
  CheckpointResult result_;
  double start_ = 0;
  std::atomic<bool> busy_{false};
  std::optional<Problem> problem_;  ///< of this rank's thread; read when it is not busy
  std::optional<Outcome> outcome_;
  std::unique_ptr<Lane> thread_;
};

/// Creates the directory of checkpoints and removes what an interrupted run left half made. Collective.
/// Errors: AgreedFailure checkpointError naming the directory.
void prepareCheckpointDirectory(Trainer& trainer);

/// Removes checkpoints that the one of `step`, which is loaded, replaces: the run that wrote it may have been killed before it did.
/// Collective. Errors: AgreedFailure checkpointError naming the one that cannot be removed.
void removeReplacedCheckpoints(Trainer& trainer, std::int64_t step);

/// Loads the latest checkpoint, saved under whatever plan, and returns its step; 0 when the directory
/// holds none. Each rank reads its own slices; all files are verified, each by one rank. Collective.
/// Errors: AgreedFailure checkpointError: a damaged file (named; an older checkpoint is not taken instead), or one of
/// another model, sequence length, batch or seed (the first difference is named); dataError: the data is not the checkpoint's.
std::int64_t loadLatestCheckpoint(Trainer& trainer);

/// Loads the weights of a Hugging Face LLaMA folder, or of one checkpoint (a directory with a manifest), and begins with
/// zero moments. Each rank reads its own slices. Collective.
/// Errors: AgreedFailure checkpointError naming the file, or the tensor and its shapes, or the member of the model.
void loadInitialWeights(Trainer& trainer, const std::string& path);

}  // namespace internevo::trainer
