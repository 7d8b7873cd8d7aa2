#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "checkpoint/safetensors.h"
#include "trainer/checkpoint.h"
#include "trainer/checkpoint_identity.h"
#include "trainer/clock.h"

namespace internevo::trainer {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBusy = std::int64_t{1} << 40;  // more than any rank's number

std::string shardName(int rank) {
  char name[48];
  std::snprintf(name, sizeof name, "shard-%05d.safetensors", rank);
  return name;
}

std::string recordName(int rank) { return shardName(rank) + ".json"; }

}  // namespace

CheckpointWriter::CheckpointWriter(Trainer& trainer)
    : trainer_(trainer),
      config_(*trainer.config().checkpoint),
      parts_(savedParts(trainer.layout(), placeOf(trainer))),
      staging_(trainer.checkpointStaging()) {
  for (const HeldPart& part : parts_) partElements_ += part.slice.elements();
  const Config& c = trainer.config();
  manifest_.identity = identityOf(trainer);
  manifest_.plan = nlohmann::json::parse(planJson(c.plan));
  manifest_.precision = c.precisionName();
  manifest_.holds = {kWeight, kFirstMoment, kSecondMoment};
  manifest_.tensors = logicalTensors(c.model);
  if (!staging_.empty()) thread_ = std::make_unique<ThreadLane>();
}

CheckpointWriter::~CheckpointWriter() = default;

/// In the memory of the backend.
const float* CheckpointWriter::sourceOf(const HeldPart& part, int holds) {
  ParameterStore& store = trainer_.parameters();
  const View whole = holds == 0   ? store.weights(part.unit)
                     : holds == 1 ? store.firstMoment(part.unit)
                                  : store.secondMoment(part.unit);
  return whole.as<float>() + part.offset;
}

void CheckpointWriter::copyToStaging() {
  BackgroundCopies* const copies = trainer_.checkpointCopies();
  float* target = staging_.as<float>();
  for (int holds = 0; holds < 3; ++holds) {
    for (const HeldPart& part : parts_) {
      const std::int64_t bytes = 4 * part.slice.elements();
      const float* const source = sourceOf(part, holds);
      require(copies != nullptr ? copies->copy(target, source, bytes)
                                : trainer_.memory().download(target, source, bytes));
      target += part.slice.elements();
    }
  }
  if (copies != nullptr) require(copies->seal());
}

/// Runs work on the thread, or here when there is none. Its error is kept for the ranks to compare.
void CheckpointWriter::submit(std::function<void()> work) {
  problem_.reset();
  busy_.store(true, std::memory_order_relaxed);
  const auto guarded = [this, work = std::move(work)] {
    try {
      work();
    } catch (const Failure& failure) {
      problem_ = failure.problem();
    } catch (const std::exception& error) {
      problem_ = Problem{StatusCode::internal, error.what(), "", "", ""};
    }
    busy_.store(false, std::memory_order_release);
    return Status::success();
  };
  if (thread_) {
    thread_->submit(guarded);
  } else {
    require(guarded());
  }
}

void CheckpointWriter::begin(std::int64_t step) {
  start_ = secondsNow();
  if (phase_ != Phase::idle || outcome_) throw Failure(StatusCode::internal, "a checkpoint is still in hand");
  result_ = {stepPath(config_.directory, step), step, 0, 0, 0};
  manifest_.step = step;
  manifest_.dataPosition = step * trainer_.config().plan.globalBatchSequences();
  phase_ = Phase::writing;
  if (const std::int64_t refused = trainer_.maximum(askForRoom()); refused > 0) {
    advance(refused);
  } else {
    if (!staging_.empty()) copyToStaging();
    submit([this] { writeShard(); });
  }
  result_.stallSeconds = secondsNow() - start_;
}

/// Before any rank writes: whether the whole checkpoint has room. The ranks' files share one file system, so that the first
/// rank asks for all. Returns its word.
std::int64_t CheckpointWriter::askForRoom() {
  problem_.reset();
  if (trainer_.groups().world.index() != 0) return word();
  const std::int64_t values = manifest_.parameters() * static_cast<std::int64_t>(manifest_.holds.size());
  try {
    requireRoom(result_.path, 4 * values, trainer_.config().leaveFree);
  } catch (const Failure& failure) {
    problem_ = failure.problem();
  }
  return word();
}

/// On the thread: this rank's file, and beside it what the manifest will say of it.
void CheckpointWriter::writeShard() {
  if (BackgroundCopies* const copies = trainer_.checkpointCopies(); copies != nullptr)
    require(copies->wait());
  const std::string directory = temporaryPath(config_.directory, result_.step);
  createDirectories(directory);
  SavedFile file{shardName(trainer_.rank()), {}, {}};
  std::vector<SafetensorsEntry> entries;
  std::vector<std::int64_t> sizes;
  const float* staged = staging_.as<float>();
  const std::map<std::string, TensorShape> shapes(manifest_.tensors.begin(), manifest_.tensors.end());
  SafetensorsHeader header;
  header.metadata = {{"format", "internevo-shard"}, {"step", std::to_string(result_.step)}};
  for (int holds = 0; holds < 3; ++holds) {
    for (const HeldPart& part : parts_) {
      const std::string name = entryName(part.tensor, manifest_.holds[static_cast<std::size_t>(holds)]);
      entries.push_back({name, entryShape(shapes.at(part.tensor), part.slice),
                         staging_.empty() ? sourceOf(part, holds) : staged});
      header.tensors.push_back({name, ElementType::float32, entries.back().shape, 0});
      staged += part.slice.elements();
    }
  }
  layoutSafetensors(&header);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    file.pieces.push_back({parts_[i].tensor, parts_[i].slice, {}});
    for (std::size_t holds = 0; holds < 3; ++holds) {
      file.pieces.back().offsets.push_back(header.tensors[holds * parts_.size() + i].offset);
    }
  }
  file.summary =
      writeSafetensors(directory + "/" + file.name, entries, header.metadata, trainer_.config().leaveFree);
  writeTextFile(directory + "/" + recordName(trainer_.rank()), fileRecordText(file));
}

/// On the thread of the first rank, when all files are written.
void CheckpointWriter::publish() {
  const std::string temporary = temporaryPath(config_.directory, result_.step);
  Manifest manifest = manifest_;
  for (int rank = 0; rank < trainer_.config().mesh.worldSize; ++rank) {
    const std::string record = temporary + "/" + recordName(rank);
    manifest.files.push_back(readFileRecord(record, shardName(rank)));
    fs::remove(record);
    if (manifest.files.back().pieces.empty()) {  // a rank whose share is padding only
      fs::remove(temporary + "/" + shardName(rank));
      manifest.files.pop_back();
    }
  }
  if (const std::string problem = coverageProblem(manifest); !problem.empty()) {
    throw Failure(StatusCode::internal, "the ranks' shards do not make the model: " + problem);
  }
  const FileSummary written = writeTextFile(temporary + "/" + kManifestName, manifestText(manifest));
  result_.bytes = manifest.bytes() + written.bytes;
  syncDirectory(temporary);
  publishDirectory(temporary, result_.path);
  removeOlder(config_.directory, result_.step, config_.keepLast);
}

std::int64_t CheckpointWriter::word() const {
  if (phase_ == Phase::idle) return 0;
  if (busy_.load(std::memory_order_acquire)) return kBusy;
  const Communicator& world = trainer_.groups().world;
  return problem_ ? world.size() - world.index() : 0;  // the largest is that of the lowest rank
}

bool CheckpointWriter::advance(std::int64_t largestWord) {
  if (phase_ == Phase::idle) return outcome_.has_value();
  if (largestWord >= kBusy) return false;
  const Communicator& world = trainer_.groups().world;
  const bool first = world.index() == 0;
  if (largestWord == 0 && phase_ == Phase::writing) {
    phase_ = Phase::publishing;
    if (first) submit([this] { publish(); });
    return false;
  }
  result_.seconds = secondsNow() - start_;
  outcome_ = Outcome{result_, std::nullopt};
  phase_ = Phase::idle;
  if (largestWord == 0) return true;
  const auto failed = static_cast<int>(world.size() - largestWord);
  const Problem problem =
      world.index() == failed && problem_
          ? *problem_
          : Problem{StatusCode::checkpointError, "rank " + std::to_string(failed) + " failed", "", "", ""};
  outcome_->failure.emplace(problem, world.index() == failed);
  if (first) {
    std::error_code ignored;  // what cannot be removed now is a left-over of the next start
    fs::remove_all(temporaryPath(config_.directory, result_.step), ignored);
  }
  return true;
}

bool CheckpointWriter::finish() {
  const double start = secondsNow();
  while (phase_ != Phase::idle) {
    if (thread_) require(thread_->waitAll());
    advance(trainer_.maximum(word()));
  }
  result_.stallSeconds += secondsNow() - start;
  if (outcome_) outcome_->result.stallSeconds = result_.stallSeconds;
  return outcome_.has_value();
}

CheckpointWriter::Outcome CheckpointWriter::take() {
  Outcome outcome = std::move(*outcome_);
  outcome_.reset();
  return outcome;
}

}  // namespace internevo::trainer
