// Hugging Face folders of LLaMA, Mistral, Qwen2, Qwen3 and InternLM2 models: config.json and model.safetensors, or several
// files with model.safetensors.index.json.
// Query and key rows are in the order of rotate_half there, as they are here: no row is moved.
// Errors are Failure checkpointError naming the file and, where there is one, the member or tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "trainer/config.h"

namespace internevo::trainer {

/// Whether a folder has a config.json (a checkpoint has a manifest.json).
bool isHuggingFace(const std::string& path);

/// A tensor's name here and there, and its shape there: a vector has one size.
struct HuggingFaceTensor {
  std::string name, huggingFace;
  std::vector<std::int64_t> shape;
};

/// Every tensor of a model, in the model's order.
std::vector<HuggingFaceTensor> huggingFaceTensors(const ModelConfig& model);

constexpr const char* kHuggingFaceConfig = "config.json";
/// A JSON object of a file, which may have very many members; a refusal of one of them.
nlohmann::json readObject(const std::string& path);
[[noreturn]] void refuseMember(const std::string& path, const std::string& member, const std::string& what,
                               const std::string& remedy);

/// How a folder keeps its tensors.
enum class HuggingFaceLayout {
  separate,  ///< a tensor of ours is one of its own
  fused      ///< InternLM2: the three projections are one matrix, key/value head by key/value head
};
struct HuggingFaceFolder {
  ModelConfig model;
  HuggingFaceLayout layout = HuggingFaceLayout::separate;
};
/// What a folder's config.json says. Refused by name: other architectures, and what their models may have and ours cannot.
HuggingFaceFolder huggingFaceFolder(const std::string& path);

/// Where the tensors of the folder lie. `model` must be the folder's but for initStandardDeviation, and every tensor
/// must be there in its shape; further tensors are refused by name.
TensorSource openHuggingFace(const std::string& path, const ModelConfig& model);

struct ExportSettings {
  ElementType type = ElementType::float32;
  std::int64_t largestFileBytes = std::int64_t{5}
                                  << 30;  ///< of tensors; a larger tensor has a file of its own
  std::int64_t maximumPositions = 0;      ///< max_position_embeddings
  DiskMargin leaveFree;
};

/// The config.json of a model, of the architecture that has what the model has. Errors: checkpointError where none has.
std::string huggingFaceConfig(const ModelConfig& model, const ExportSettings& settings);

/// Writes a folder that does not exist yet, under another name first. Memory: 32 MiB. `progress` is told bytes written.
/// Returns the bytes of its tensor files.
std::int64_t exportHuggingFace(const TensorSource& source, const ModelConfig& model,
                               const ExportSettings& settings, const std::string& path,
                               const std::function<void(std::int64_t)>& progress);

}  // namespace internevo::trainer
