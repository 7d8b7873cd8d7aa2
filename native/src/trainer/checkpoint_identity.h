// What must be the same for a run to go on from a checkpoint, whatever the plan.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "trainer/held.h"
#include "trainer/trainer.h"

namespace internevo::trainer {

/// Model, sequence length, sequences of the global batch, seed, size of the data and, on rank 0, which reads it, a digest of it.
/// Precision is not among them: what is saved is float32, and bf16 keeps float32 master weights.
nlohmann::json identityOf(const Trainer& trainer);

/// Whether the data has the size and the digest that were saved; one that was not saved is not compared.
/// Errors: Failure dataError naming the file, or the mixture, and the checkpoint.
void requireSameData(const nlohmann::json& saved, const nlohmann::json& now, const TrainingData& data,
                     const std::string& checkpoint);

/// Errors: Failure checkpointError naming the first member that differs, both values and the file.
void requireSame(const nlohmann::json& saved, const nlohmann::json& now, const std::string& path,
                 const std::string& manifest);

ShardPlace placeOf(Trainer& trainer);

}  // namespace internevo::trainer
