// What the trainer's tests share: small configurations, the planner's mesh rule, token files, temporary directories.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config.h"

namespace internevo::trainer::testing {

/// A directory that is removed with all it holds.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// The planner's rule: rank = (pipeline·dp + data)·sp + sequence; shards of one parameter group are neighbours.
MeshConfig meshOf(const PlanConfig& plan);

/// Deterministic tokens with some structure (a token depends on the one before), so that there is something to learn.
std::vector<std::uint32_t> sampleTokens(std::int64_t count, std::uint32_t vocabulary);
void writeTokenFile(const std::string& path, const std::vector<std::uint32_t>& tokens,
                    std::uint32_t vocabulary, std::uint32_t bytesPerToken = 2);

/// A small model with grouped queries, an odd number of layers and sizes that no shard divides evenly.
Config smallConfig(const std::string& dataPath);
/// Its model with what models of these families have: biases and YaRN; norms of wide heads; positions of Llama 3.1; windows.
ModelConfig qwen2Model();
ModelConfig qwen3Model();
ModelConfig llama3Model();
ModelConfig mistralModel();
/// How many times more the gradient of a tensor may err by rounding than that of a plain model's. Normed heads have scores as
/// large as they are wide. The gradients of their gains, and of the biases of all keys, which shift the scores of a query alike,
/// are what is left of sums that cancel.
double roundingOf(const ModelConfig& model, const std::string& tensor);
/// The JSON document of a configuration.
std::string documentOf(const Config& config);
void writeFile(const std::string& path, const std::string& text);
std::string readFile(const std::string& path);

/// ‖a − b‖ / ‖b‖ (0 when both are zero).
double relativeError(const float* a, const double* b, std::int64_t count);
double relativeError(const float* a, const float* b, std::int64_t count);

}  // namespace internevo::trainer::testing
