#include <algorithm>

#include "checkpoint/hugging_face.h"
#include "checkpoint/tensor_source.h"
#include "trainer/checkpoint.h"
#include "trainer/checkpoint_identity.h"

namespace internevo::trainer {

namespace {

using Json = nlohmann::json;

constexpr const char* kDataTokens = "dataTokens";
constexpr const char* kDataDigest = "dataDigest";

void refuseMember(const std::string& what, const std::string& field, const Json& now,
                  const std::string& remedy) {
  throw Failure(Problem{StatusCode::checkpointError, what, field, now.dump(), remedy});
}

View held(ParameterStore& store, const std::string& holds, int unit) {
  if (holds == kWeight) return store.weights(unit);
  return holds == kFirstMoment ? store.firstMoment(unit) : store.secondMoment(unit);
}

void clear(Trainer& trainer) {
  ParameterStore& store = trainer.parameters();
  for (int unit = 0; unit < trainer.layout().unitCount(); ++unit) {
    const std::int64_t bytes = 4 * trainer.layout().optimizerShard(unit);
    for (const char* holds : {kWeight, kFirstMoment, kSecondMoment}) {
      require(trainer.memory().zero(held(store, holds, unit).data, bytes));
    }
  }
}

/// Unit by unit, so that the list of runs stays small; by way of the program's memory where the weights stand in another.
void loadHeld(Trainer& trainer, const TensorSource& source, const std::string& holds) {
  std::vector<SliceDemand> demands;
  std::vector<float> staging;
  const bool direct = trainer.memory().hostReads();
  int unit = 0;
  const auto begin = [&] {
    // Its padding is zero already, and so is that of the staging.
    if (!direct) staging.assign(static_cast<std::size_t>(trainer.layout().optimizerShard(unit)), 0.f);
  };
  const auto read = [&] {
    readSlices(source, demands);
    demands.clear();
    if (direct || staging.empty()) return;
    require(trainer.memory().upload(held(trainer.parameters(), holds, unit).data, staging.data(),
                                    4 * static_cast<std::int64_t>(staging.size())));
  };
  begin();
  for (const HeldPart& part : heldParts(trainer.layout(), placeOf(trainer))) {
    if (part.unit != unit) read(), unit = part.unit, begin();
    float* const whole = direct ? held(trainer.parameters(), holds, unit).as<float>() : staging.data();
    demands.push_back({part.tensor, part.slice, whole + part.offset});
  }
  read();
}

/// The files that this rank verifies: every one is verified by one rank, in the same plan its own.
void verifyShare(const Trainer& trainer, const Manifest& manifest, const std::string& directory) {
  const auto ranks = static_cast<std::size_t>(trainer.config().mesh.worldSize), files = manifest.files.size();
  const auto rank = static_cast<std::size_t>(trainer.rank());
  for (std::size_t i = rank * files / ranks; i < (rank + 1) * files / ranks; ++i) {
    verifyFile(directory + "/" + manifest.files[i].name, manifest.files[i].summary);
  }
}

/// What to do about a checkpoint that cannot be read: an older one is never taken unasked.
std::string remedyFor(const std::string& directory, std::int64_t step) {
  const std::string remove = "remove " + stepPath(directory, step);
  std::vector<std::int64_t> steps = stepsIn(directory);
  steps.erase(std::remove(steps.begin(), steps.end(), step), steps.end());
  if (steps.empty()) return remove + " to begin anew; there is no other checkpoint";
  return remove + " to go on from step " + std::to_string(steps.back());
}

void requireCovered(const Manifest& manifest, const std::string& manifestPath) {
  const std::string problem = coverageProblem(manifest);
  if (!problem.empty()) refuseFile(manifestPath, "is of no whole model: " + problem);
}

}  // namespace

Json identityOf(const Trainer& trainer) {
  const Config& c = trainer.config();
  Json identity{
      {"model", Json::parse(modelJson(c.model))},
      {"sequenceLengthTokens", c.sequenceLengthTokens},
      {"globalBatchSequences", c.plan.globalBatchSequences()},
      {"seed", c.seed},
      {kDataTokens, trainer.data().tokenCount()},
      // What a checkpoint from before documents were packed lacks is null, as it is without packing.
      {"packing", c.packsDocuments() ? Json("documents") : Json()},
      {"endOfDocumentToken",
       c.packsDocuments() && c.data.endOfDocumentToken ? Json(*c.data.endOfDocumentToken) : Json()}};
  if (trainer.rank() == 0) identity[kDataDigest] = trainer.data().digest();
  return identity;
}

void requireSameData(const Json& saved, const Json& now, const TrainingData& data,
                     const std::string& checkpoint) {
  const auto differs = [&](const char* name) {
    return saved.is_object() && saved.contains(name) && now.contains(name) && saved[name] != now[name];
  };
  std::string what;
  if (differs(kDataTokens)) {
    what = "has " + now[kDataTokens].dump() + " tokens; it had " + saved[kDataTokens].dump();
  } else if (differs(kDataDigest)) {
    what = "has other content than it had";
  } else {
    return;
  }
  const bool mixed = data.isMixture();
  throw Failure(
      Problem{StatusCode::dataError, data.words() + " " + what + " when " + checkpoint + " was written",
              mixed ? "data.sources" : "data.path",
              mixed ? "" : Json(data.path()).dump(-1, ' ', false, Json::error_handler_t::replace),
              "put the data back as it was and let the job go on, or submit a new job for other data"});
}

void requireSame(const Json& saved, const Json& now, const std::string& path, const std::string& manifest) {
  for (const auto& [name, value] : now.items()) {
    const std::string field = path.empty() ? name : path + "." + name;
    const Json before = saved.is_object() && saved.contains(name) ? saved[name] : Json();
    if (value.is_object()) {
      requireSame(before, value, field, manifest);
    } else if (before != value) {
      refuseMember(
          manifest + " was saved with " + field + " " + before.dump() + "; the run has " + value.dump(),
          field, value,
          name == "globalBatchSequences"
              ? "give a plan whose microBatchSize x microBatches x dataParallel is " + before.dump()
              : "continue with the same value, or give another checkpoint directory");
    }
  }
}

ShardPlace placeOf(Trainer& trainer) {
  const GroupSet& groups = trainer.groups();
  return {groups.parameterShards.index(), groups.optimizerShards.index(), groups.replicas.index(),
          groups.replicas.size()};
}

void prepareCheckpointDirectory(Trainer& trainer) {
  agree(trainer.groups().world, trainer.reduceWorkspace(), [&] {
    if (trainer.rank() != 0) return;
    createDirectories(trainer.config().checkpoint->directory);
    removeLeftovers(trainer.config().checkpoint->directory);
  });
}

void removeReplacedCheckpoints(Trainer& trainer, std::int64_t step) {
  agree(trainer.groups().world, trainer.reduceWorkspace(), [&] {
    const CheckpointConfig& c = *trainer.config().checkpoint;
    if (trainer.rank() == 0) removeOlder(c.directory, step, c.keepLast);
  });
}

std::int64_t loadLatestCheckpoint(Trainer& trainer) {
  const CheckpointConfig& c = *trainer.config().checkpoint;
  const Communicator& world = trainer.groups().world;
  std::int64_t step = 0;
  agree(world, trainer.reduceWorkspace(), [&] {
    if (world.index() != 0) return;
    const std::vector<std::int64_t> steps = stepsIn(c.directory);
    if (!steps.empty()) step = steps.back();
  });
  step = trainer.maximum(step);
  if (step == 0) return 0;
  const std::string directory = stepPath(c.directory, step), manifestPath = directory + "/" + kManifestName;
  const auto remedy = [&] { return remedyFor(c.directory, step); };
  Manifest manifest;
  agree(world, trainer.reduceWorkspace(), [&] {
    withRemedy(remedy, [&] {
      manifest = readManifest(directory);
      if (manifest.step != step) refuseFile(manifestPath, "is of step " + std::to_string(manifest.step));
      Json identity = identityOf(trainer);
      requireSameData(manifest.identity, identity, trainer.data(), directory);
      for (const char* name : {kDataTokens, kDataDigest}) identity.erase(name);
      requireSame(manifest.identity, identity, "", manifestPath);
      if (manifest.tensors != logicalTensors(trainer.config().model))
        refuseFile(manifestPath, "lists other tensors than the model's");
      if (world.index() == 0) requireCovered(manifest, manifestPath);
      verifyShare(trainer, manifest, directory);
    });
  });
  agree(world, trainer.reduceWorkspace(), [&] {
    clear(trainer);
    withRemedy(remedy, [&] {
      for (const std::string holds : {kWeight, kFirstMoment, kSecondMoment}) {
        loadHeld(trainer, sourceOf(manifest, directory, holds), holds);
      }
    });
  });
  trainer.parameters().weightsLoaded();
  return step;
}

void loadInitialWeights(Trainer& trainer, const std::string& path) {
  const Communicator& world = trainer.groups().world;
  const ModelConfig& model = trainer.config().model;
  agree(world, trainer.reduceWorkspace(), [&] {
    const auto remedy = [&] { return "give other weights than " + path + ", or copy them once more"; };
    withRemedy(remedy, [&] {
      TensorSource source;
      if (isHuggingFace(path)) {
        source = openHuggingFace(path, model);
      } else {
        const Manifest manifest = readManifest(path);
        const std::string manifestPath = path + "/" + kManifestName;
        Json shapes = Json::parse(modelJson(model));
        shapes.erase("initStandardDeviation");  // not of a model that is trained already
        requireSame(manifest.identity.value("model", Json()), shapes, "model", manifestPath);
        if (manifest.tensors != logicalTensors(model))
          refuseFile(manifestPath, "lists other tensors than the model's");
        if (world.index() == 0) requireCovered(manifest, manifestPath);
        verifyShare(trainer, manifest, path);
        source = sourceOf(manifest, path, kWeight);
      }
      clear(trainer);
      loadHeld(trainer, source, kWeight);
    });
  });
  trainer.parameters().weightsLoaded();
}

}  // namespace internevo::trainer
