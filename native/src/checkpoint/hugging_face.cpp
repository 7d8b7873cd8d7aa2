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

constexpr const char* kConfig = "config.json";
constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr std::int64_t kPieceElements = std::int64_t{4} << 20;

[[noreturn]] void refuseMember(const std::string& path, const std::string& member, const std::string& what,
                               const std::string& remedy) {
  throw Failure(Problem{StatusCode::checkpointError, path + ": " + member + " " + what, member, "", remedy});
}

Json readJson(const std::string& path) {
  Json document = Json::parse(readTextFile(path), nullptr, false);
  if (!document.is_object()) refuseFile(path, "is not a JSON object");
  return document;
}

std::int64_t sizeIn(const Json& config, const char* member, const std::string& path,
                    std::int64_t otherwise = 0) {
  if (!config.contains(member) || config[member].is_null()) {
    if (otherwise > 0) return otherwise;
    refuseMember(path, member, "is missing", "give the folder of a LLaMA model");
  }
  if (!config[member].is_number_integer() || config[member] < 1 || config[member] > (std::int64_t{1} << 31)) {
    refuseMember(path, member, config[member].dump() + " is no size", "give the folder of a LLaMA model");
  }
  return config[member].get<std::int64_t>();
}

/// A member that must have this value when it is there.
void require(const Json& config, const char* member, const Json& value, const std::string& path) {
  if (!config.contains(member) || config[member] == value || (config[member].is_null() && value == false))
    return;
  refuseMember(path, member, config[member].dump() + " is not supported; it must be " + value.dump(),
               "give a LLaMA model without it");
}

double ropeThetaOf(const Json& config, const std::string& path) {
  // Newer folders keep both in rope_parameters; rope_scaling is the older name of what stretches positions.
  Json rope = config.value("rope_parameters", Json());
  if (!rope.is_object()) rope = config.value("rope_scaling", Json());
  if (rope.is_object()) {
    const Json type = rope.contains("rope_type") ? rope["rope_type"] : rope.value("type", Json("default"));
    if (type != "default") {
      refuseMember(path, "rope_scaling", rope.dump() + " is not supported",
                   "give a model without scaled positions");
    }
  }
  const Json theta = rope.is_object() && rope.contains("rope_theta")
                         ? rope["rope_theta"]
                         : config.value("rope_theta", Json(10000.0));
  if (!theta.is_number() || theta <= 0)
    refuseMember(path, "rope_theta", theta.dump() + " is no number above 0", "mend it");
  return theta.get<double>();
}

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
  const Json document = readJson(index);
  const Json map = document.value("weight_map", Json::object());
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

bool isHuggingFace(const std::string& path) { return fs::exists(path + "/" + kConfig); }

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

ModelConfig huggingFaceModel(const std::string& folder) {
  const std::string path = folder + "/" + kConfig;
  const Json config = readJson(path);
  if (config.value("model_type", Json()) != "llama") {
    refuseMember(path, "model_type", config.value("model_type", Json()).dump() + " is not \"llama\"",
                 "give a LLaMA model");
  }
  require(config, "hidden_act", "silu", path);
  require(config, "attention_bias", false, path);
  require(config, "mlp_bias", false, path);
  ModelConfig m;
  m.hiddenSize = sizeIn(config, "hidden_size", path);
  m.layers = sizeIn(config, "num_hidden_layers", path);
  m.heads = sizeIn(config, "num_attention_heads", path);
  m.kvHeads = sizeIn(config, "num_key_value_heads", path, m.heads);
  m.ffnHiddenSize = sizeIn(config, "intermediate_size", path);
  m.vocabularySize = sizeIn(config, "vocab_size", path);
  const Json tied = config.value("tie_word_embeddings", Json(false));
  if (!tied.is_boolean())
    refuseMember(path, "tie_word_embeddings", tied.dump() + " is no boolean", "mend it");
  m.tiedEmbeddings = tied.get<bool>();
  m.ropeTheta = ropeThetaOf(config, path);
  const Json epsilon = config.value("rms_norm_eps", Json(1e-6));
  if (!epsilon.is_number() || epsilon <= 0)
    refuseMember(path, "rms_norm_eps", epsilon.dump() + " is no number above 0", "mend it");
  m.normEpsilon = epsilon.get<double>();
  const Json deviation = config.value("initializer_range", Json(0.02));
  if (deviation.is_number() && deviation > 0) m.initStandardDeviation = deviation.get<double>();
  if (m.hiddenSize % m.heads != 0 || m.heads % m.kvHeads != 0) {
    refuseMember(path, "num_attention_heads",
                 std::to_string(m.heads) + " does not fit hidden_size and num_key_value_heads", "mend it");
  }
  if (sizeIn(config, "head_dim", path, m.headSize()) != m.headSize()) {
    refuseMember(path, "head_dim", config["head_dim"].dump() + " is not hidden_size / num_attention_heads",
                 "give another model");
  }
  return m;
}

TensorSource openHuggingFace(const std::string& path, const ModelConfig& model) {
  requireModel(path + "/" + kConfig, huggingFaceModel(path), model);
  std::map<std::string, HuggingFaceTensor> here;  // by the name there
  for (HuggingFaceTensor& tensor : huggingFaceTensors(model)) here[tensor.huggingFace] = std::move(tensor);
  TensorSource source;
  source.paths = filesOf(path);
  for (std::size_t i = 0; i < source.paths.size(); ++i) {
    const SafetensorsHeader header = readSafetensorsHeader(FileReader(source.paths[i]));
    for (const SafetensorsTensor& tensor : header.tensors) {
      // Tied folders often repeat the embedding as lm_head; older ones keep the rotary frequencies.
      if (model.tiedEmbeddings && tensor.name == "lm_head.weight") continue;
      if (tensor.name.size() > 9 && tensor.name.compare(tensor.name.size() - 9, 9, ".inv_freq") == 0)
        continue;
      const auto found = here.find(tensor.name);
      if (found == here.end()) {
        refuseFile(source.paths[i], "holds " + tensor.name + ", which the model does not have",
                   "give weights of this model");
      }
      const std::vector<std::int64_t>& wanted = found->second.shape;
      if (tensor.shape != wanted) {
        refuseFile(source.paths[i],
                   "holds " + tensor.name + " in shape " + textOf(tensor.shape) + "; the model needs " +
                       textOf(wanted),
                   "give weights of this model");
      }
      const TensorShape shape = matrixOf(wanted);
      StoredTensor& stored = source.tensors[found->second.name];
      if (!stored.pieces.empty()) refuseFile(source.paths[i], "holds " + tensor.name + " a second time");
      stored = {shape, {{static_cast<int>(i), wholeOf(shape), tensor.offset, tensor.type}}};
    }
  }
  for (const auto& [theirs, tensor] : here) {
    if (source.tensors.count(tensor.name) == 0)
      refuseFile(path, "holds no " + theirs, "give the whole model");
  }
  return source;
}

// ---- export --------------------------------------------------------------------------------------------------------

namespace {

std::string configText(const ModelConfig& m, const ExportSettings& settings) {
  return Json{{"architectures", {"LlamaForCausalLM"}},
              {"model_type", "llama"},
              {"hidden_size", m.hiddenSize},
              {"num_hidden_layers", m.layers},
              {"num_attention_heads", m.heads},
              {"num_key_value_heads", m.kvHeads},
              {"head_dim", m.headSize()},
              {"intermediate_size", m.ffnHiddenSize},
              {"vocab_size", m.vocabularySize},
              {"tie_word_embeddings", m.tiedEmbeddings},
              {"rope_theta", m.ropeTheta},
              {"rope_scaling", nullptr},
              {"rms_norm_eps", m.normEpsilon},
              {"initializer_range", m.initStandardDeviation},
              {"max_position_embeddings", settings.maximumPositions},
              {"hidden_act", "silu"},
              {"attention_bias", false},
              {"attention_dropout", 0.0},
              {"mlp_bias", false},
              {"bos_token_id", nullptr},
              {"eos_token_id", nullptr},
              {"use_cache", true},
              {"torch_dtype", settings.type == ElementType::float32 ? "float32" : "bfloat16"}}
             .dump(2) +
         "\n";
}

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
  createDirectories(temporary);
  std::vector<OutputFile> files = divide(model, settings);
  std::int64_t total = 0, tensorBytes = 0;
  Json map = Json::object();
  for (OutputFile& output : files) {
    const std::string header = layoutSafetensors(&output.header);
    auto bytes = static_cast<std::int64_t>(header.size());
    for (const SafetensorsTensor& tensor : output.header.tensors) {
      bytes += tensor.bytes(), tensorBytes += tensor.bytes();
      map[tensor.name] = output.name;
    }
    FileWriter file(temporary + "/" + output.name, bytes);
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
  writeTextFile(temporary + "/" + kConfig, configText(model, settings));
  syncDirectory(temporary);
  publishDirectory(temporary, path);
  return total;
}

ModelConfig modelOf(const nlohmann::json& json) {
  ModelConfig m;
  m.hiddenSize = json.at("hiddenSize"), m.layers = json.at("layers"), m.heads = json.at("heads");
  m.kvHeads = json.at("kvHeads"), m.ffnHiddenSize = json.at("ffnHiddenSize");
  m.vocabularySize = json.at("vocabularySize"), m.tiedEmbeddings = json.at("tiedEmbeddings");
  m.ropeTheta = json.at("ropeTheta"), m.normEpsilon = json.at("normEpsilon");
  m.initStandardDeviation = json.at("initStandardDeviation");
  return m;
}

}  // namespace internevo::trainer
