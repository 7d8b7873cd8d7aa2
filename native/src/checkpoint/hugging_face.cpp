#include "checkpoint/hugging_face.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>

#include "internevo/tensor.h"
#include "layer_program/layer_program.h"
#include "trainer/failure.h"

namespace internevo::trainer {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr std::int64_t kPieceElements = std::int64_t{4} << 20;

void requireEqual(const std::string& path, const char* there, const Json& found, const char* here,
                  const Json& wanted) {
  if (found == wanted) return;
  throw Failure(Problem{
      StatusCode::checkpointError,
      path + " has " + there + " " + found.dump() + "; the run's model has " + here + " " + wanted.dump(),
      std::string("model.") + here, wanted.dump(),
      std::string("use ") + found.dump() + ", or other weights"});
}

void requireModel(const std::string& path, const ModelConfig& found, const ModelConfig& wanted) {
  requireEqual(path, "hidden_size", found.hiddenSize, "hiddenSize", wanted.hiddenSize);
  requireEqual(path, "num_hidden_layers", found.layers, "layers", wanted.layers);
  requireEqual(path, "num_attention_heads", found.heads, "heads", wanted.heads);
  requireEqual(path, "num_key_value_heads", found.kvHeads, "kvHeads", wanted.kvHeads);
  requireEqual(path, "intermediate_size", found.ffnHiddenSize, "ffnHiddenSize", wanted.ffnHiddenSize);
  requireEqual(path, "vocab_size", found.vocabularySize, "vocabularySize", wanted.vocabularySize);
  requireEqual(path, "tie_word_embeddings", found.tiedEmbeddings, "tiedEmbeddings", wanted.tiedEmbeddings);
  requireEqual(path, "rope_theta", found.ropeTheta, "ropeTheta", wanted.ropeTheta);
  requireEqual(path, "rms_norm_eps", found.normEpsilon, "normEpsilon", wanted.normEpsilon);
  requireEqual(path, "head_dim", found.headSize(), "headSize", wanted.headSize());
  requireEqual(path, "norms of heads", found.queryKeyNorm, "queryKeyNorm", wanted.queryKeyNorm);
  requireEqual(path, "biases of its projections", found.queryKeyValueBias, "queryKeyValueBias",
               wanted.queryKeyValueBias);
  requireEqual(path, "sliding_window", found.slidingWindowTokens, "slidingWindowTokens",
               wanted.slidingWindowTokens);
  const auto scaling = [](const ModelConfig& m) {
    return Json::parse(modelJson(m)).value("ropeScaling", Json());
  };
  requireEqual(path, "rope_scaling", scaling(found), "ropeScaling", scaling(wanted));
}

TensorShape matrixOf(const std::vector<std::int64_t>& shape) {
  return shape.size() == 1 ? TensorShape{1, shape[0]} : TensorShape{shape[0], shape[1]};
}

std::string textOf(const std::vector<std::int64_t>& shape) { return Json(shape).dump(); }

/// The tensor files of a folder.
std::vector<std::string> filesOf(const std::string& path) {
  if (fs::exists(path + "/" + kSingle)) return {path + "/" + kSingle};
  const std::string index = path + "/" + kIndex;
  if (!fs::exists(index))
    refuseFile(path, std::string("has neither ") + kSingle + " nor " + kIndex, "give safetensors files");
  const nlohmann::json document = readObject(index);
  const nlohmann::json map = document.value("weight_map", nlohmann::json::object());
  std::set<std::string> names;
  for (const auto& [tensor, file] : map.items()) {
    if (!file.is_string() || file.get_ref<const std::string&>().find('/') != std::string::npos) {
      refuseMember(index, "weight_map", "does not name a file of the folder for " + tensor, "mend the index");
    }
    names.insert(path + "/" + file.get<std::string>());
  }
  return {names.begin(), names.end()};
}

}  // namespace

bool isHuggingFace(const std::string& path) { return fs::exists(path + "/" + kHuggingFaceConfig); }

std::vector<HuggingFaceTensor> huggingFaceTensors(const ModelConfig& m) {
  std::vector<HuggingFaceTensor> tensors;
  const ProgramFlags flags = flagsOf(m, PlanConfig{});
  const auto add = [&](const LayerProgram& program, const ProgramTensor& tensor, const std::string& here,
                       const std::string& there) {
    if (!holds(tensor, flags)) return;
    std::vector<std::int64_t> shape;
    if (!tensor.rows.empty()) shape.push_back(program.size(m, tensor.rows));
    shape.push_back(program.size(m, tensor.columns));
    tensors.push_back({here + tensor.name, there + tensor.huggingFace, std::move(shape)});
  };
  const LayerProgram& ends = layerProgram(m, 0);
  const auto addEnd = [&](const char* unit) {
    for (const ProgramTensor& tensor : ends.endTensors()) {
      if (tensor.unit == unit) add(ends, tensor, "", "");
    }
  };
  addEnd("embedding");
  for (std::int64_t layer = 0; layer < m.layers; ++layer) {
    const LayerProgram& program = layerProgram(m, layer);
    const std::string here = "layers." + std::to_string(layer) + ".";
    for (const ProgramTensor& tensor : program.tensors()) add(program, tensor, here, "model." + here);
  }
  addEnd("head");
  return tensors;
}

namespace {

/// A tensor of a folder, and where in it ours lie.
struct FolderTensor {
  struct Part {
    std::string name;
    TensorShape shape;  ///< of the whole tensor of ours
    Slice slice;
    std::int64_t first = 0;  ///< element of the folder's tensor
  };
  std::vector<std::int64_t> shape;
  std::vector<Part> parts;
};
using FolderTensors = std::map<std::string, FolderTensor>;  // by the name there

FolderTensors separateTensors(const ModelConfig& m) {
  FolderTensors tensors;
  for (const HuggingFaceTensor& each : huggingFaceTensors(m)) {
    const TensorShape shape = matrixOf(each.shape);
    tensors[each.huggingFace] = {each.shape, {{each.name, shape, wholeOf(shape), 0}}};
  }
  return tensors;
}

/// Whole rows [first, first + count) of a matrix.
Slice rowsOf(const TensorShape& shape, std::int64_t first, std::int64_t count) {
  Slice slice = wholeOf(shape);
  slice.begin = first * shape.columns, slice.end = (first + count) * shape.columns;
  return slice;
}

/// InternLM2 has names of its own, and one matrix for the three projections: of every key/value head first the rows of the
/// query heads that read it, then its key's, then its value's.
FolderTensors fusedTensors(const ModelConfig& m) {
  const std::map<std::string, std::string> ends = {{"embedding", "model.tok_embeddings.weight"},
                                                   {"finalNorm", "model.norm.weight"},
                                                   {"head", "output.weight"}};
  const std::map<std::string, std::string> ofLayer = {{"attentionNorm", "attention_norm.weight"},
                                                      {"wo", "attention.wo.weight"},
                                                      {"mlpNorm", "ffn_norm.weight"},
                                                      {"gate", "feed_forward.w1.weight"},
                                                      {"up", "feed_forward.w3.weight"},
                                                      {"down", "feed_forward.w2.weight"},
                                                      {"wq", "attention.wqkv.weight"},
                                                      {"wk", "attention.wqkv.weight"},
                                                      {"wv", "attention.wqkv.weight"}};
  const std::int64_t size = m.headSize(), readers = m.heads / m.kvHeads, group = (readers + 2) * size;
  FolderTensors tensors;
  for (const HuggingFaceTensor& each : huggingFaceTensors(m)) {
    const TensorShape shape = matrixOf(each.shape);
    const std::size_t dot = each.name.rfind('.');
    if (dot == std::string::npos) {
      tensors[ends.at(each.name)] = {each.shape, {{each.name, shape, wholeOf(shape), 0}}};
      continue;
    }
    const std::string own = each.name.substr(dot + 1);
    FolderTensor& there = tensors["model." + each.name.substr(0, dot + 1) + ofLayer.at(own)];
    if (own != "wq" && own != "wk" && own != "wv") {
      there = {each.shape, {{each.name, shape, wholeOf(shape), 0}}};
      continue;
    }
    there.shape = {m.kvHeads * group, m.hiddenSize};
    const std::int64_t rows = own == "wq" ? readers * size : size;
    const std::int64_t before = own == "wq" ? 0 : (own == "wk" ? readers : readers + 1) * size;
    for (std::int64_t head = 0; head < m.kvHeads; ++head) {
      there.parts.push_back(
          {each.name, shape, rowsOf(shape, head * rows, rows), (head * group + before) * m.hiddenSize});
    }
  }
  return tensors;
}

/// What folders hold beside the model: tied ones often repeat the embedding as lm_head, older ones keep the frequencies of the
/// rotary positions.
bool isLeftOut(const std::string& name, const ModelConfig& model) {
  return (model.tiedEmbeddings && (name == "lm_head.weight" || name == "output.weight")) ||
         name.ends_with(".inv_freq");
}

}  // namespace

TensorSource openHuggingFace(const std::string& path, const ModelConfig& model) {
  const HuggingFaceFolder folder = huggingFaceFolder(path);
  requireModel(path + "/" + kHuggingFaceConfig, folder.model, model);
  FolderTensors awaited =
      folder.layout == HuggingFaceLayout::fused ? fusedTensors(model) : separateTensors(model);
  std::set<std::string> seen;
  TensorSource source;
  source.paths = filesOf(path);
  for (std::size_t i = 0; i < source.paths.size(); ++i) {
    const SafetensorsHeader header = readSafetensorsHeader(FileReader(source.paths[i]));
    for (const SafetensorsTensor& tensor : header.tensors) {
      if (isLeftOut(tensor.name, model)) continue;
      const auto found = awaited.find(tensor.name);
      if (found == awaited.end()) {
        refuseFile(source.paths[i], "holds " + tensor.name + ", which the model does not have",
                   "give weights of this model");
      }
      if (tensor.shape != found->second.shape) {
        refuseFile(source.paths[i],
                   "holds " + tensor.name + " in shape " + textOf(tensor.shape) + "; the model needs " +
                       textOf(found->second.shape),
                   "give weights of this model");
      }
      if (!seen.insert(tensor.name).second)
        refuseFile(source.paths[i], "holds " + tensor.name + " a second time");
      for (const FolderTensor::Part& part : found->second.parts) {
        StoredTensor& stored = source.tensors[part.name];
        stored.shape = part.shape;
        stored.pieces.push_back({static_cast<int>(i), part.slice,
                                 tensor.offset + part.first * bytesOf(tensor.type), tensor.type});
      }
    }
  }
  for (const auto& [name, tensor] : awaited) {
    if (seen.count(name) == 0) refuseFile(path, "holds no " + name, "give the whole model");
  }
  return source;
}

// ---- export --------------------------------------------------------------------------------------------------------

namespace {

struct OutputFile {
  std::string name;
  SafetensorsHeader header;
  std::vector<HuggingFaceTensor> tensors;
};

std::vector<OutputFile> divide(const ModelConfig& model, const ExportSettings& settings) {
  std::vector<OutputFile> files(1);
  std::int64_t bytes = 0;
  for (const HuggingFaceTensor& each : huggingFaceTensors(model)) {
    const SafetensorsTensor tensor{each.huggingFace, settings.type, each.shape, 0};
    if (bytes > 0 && bytes + tensor.bytes() > settings.largestFileBytes) files.emplace_back(), bytes = 0;
    files.back().header.tensors.push_back(tensor);
    files.back().tensors.push_back(each);
    bytes += tensor.bytes();
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, files.size());
    files[i].name = files.size() == 1 ? kSingle : name;
    files[i].header.metadata = {{"format", "pt"}};
  }
  return files;
}

void writeTensor(const TensorSource& source, const std::string& name, const TensorShape& shape,
                 ElementType type, FileWriter* file, const std::function<void(std::int64_t)>& progress) {
  std::vector<float> values(static_cast<std::size_t>(std::min(shape.elements(), kPieceElements)));
  std::vector<std::uint16_t> rounded(type == ElementType::float32 ? 0 : values.size());
  for (std::int64_t begin = 0; begin < shape.elements(); begin += kPieceElements) {
    Slice slice = wholeOf(shape);
    slice.begin = begin, slice.end = std::min(shape.elements(), begin + kPieceElements);
    readSlices(source, {{name, slice, values.data()}});
    if (type != ElementType::float32) {
      std::transform(values.begin(), values.begin() + slice.elements(), rounded.begin(), bfloat16FromFloat);
    }
    const void* const data =
        type == ElementType::float32 ? static_cast<const void*>(values.data()) : rounded.data();
    file->write(data, slice.elements() * bytesOf(type));
    progress(slice.elements() * bytesOf(type));
  }
}

}  // namespace

std::int64_t exportHuggingFace(const TensorSource& source, const ModelConfig& model,
                               const ExportSettings& settings, const std::string& path,
                               const std::function<void(std::int64_t)>& progress) {
  if (fs::exists(path)) refuseFile(path, "exists already", "give the path of a folder that does not exist");
  const std::string temporary = path + ".tmp";
  std::error_code error;
  fs::remove_all(temporary, error);
  std::vector<OutputFile> files = divide(model, settings);
  std::int64_t needed = 0;
  for (const OutputFile& output : files) {
    for (const SafetensorsTensor& tensor : output.header.tensors) needed += tensor.bytes();
  }
  requireRoom(path, needed, settings.leaveFree);
  createDirectories(temporary);
  std::int64_t total = 0, tensorBytes = 0;
  Json map = Json::object();
  for (OutputFile& output : files) {
    const std::string header = layoutSafetensors(&output.header);
    auto bytes = static_cast<std::int64_t>(header.size());
    for (const SafetensorsTensor& tensor : output.header.tensors) {
      bytes += tensor.bytes(), tensorBytes += tensor.bytes();
      map[tensor.name] = output.name;
    }
    FileWriter file(temporary + "/" + output.name, bytes, settings.leaveFree);
    file.write(header.data(), static_cast<std::int64_t>(header.size()));
    for (const HuggingFaceTensor& tensor : output.tensors) {
      writeTensor(source, tensor.name, matrixOf(tensor.shape), settings.type, &file, progress);
    }
    total += file.finish().bytes;
  }
  if (files.size() > 1) {
    writeTextFile(temporary + "/" + kIndex,
                  Json{{"metadata", {{"total_size", tensorBytes}}}, {"weight_map", map}}.dump(2) + "\n");
  }
  writeTextFile(temporary + "/" + kHuggingFaceConfig, huggingFaceConfig(model, settings));
  syncDirectory(temporary);
  publishDirectory(temporary, path);
  return total;
}

}  // namespace internevo::trainer
