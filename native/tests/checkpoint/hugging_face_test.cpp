// Hugging Face folders: what is written is read again, and what does not fit is refused by name.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "checkpoint/hugging_face.h"
#include "checkpoint_tool/commands.h"
#include "internevo/tensor.h"
#include "trainer/failure.h"
#include "trainer/held.h"
#include "trainer/support.h"

namespace internevo::trainer::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

class Folders : public ::testing::Test {
 protected:
  /// A checkpoint of random weights of a model in one file.
  void makeCheckpoint(const ModelConfig& model) {
    model_ = model;
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0, 0.1f);
    std::vector<SafetensorsEntry> entries;
    for (const auto& [name, shape] : logicalTensors(model_)) {
      std::vector<float>& values = weights_[name];
      values.resize(static_cast<std::size_t>(shape.elements()));
      for (float& value : values) value = normal(random);
      entries.push_back({entryName(name, kWeight), entryShape(shape, wholeOf(shape)), values.data()});
    }
    fs::create_directories(checkpoint_);
    SavedFile file{"all.safetensors", {}, {}};
    file.summary = writeSafetensors(checkpoint_ + "/all.safetensors", entries, {});
    const SafetensorsHeader header = readSafetensorsHeader(FileReader(checkpoint_ + "/all.safetensors"));
    manifest_.tensors = logicalTensors(model_);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const auto& [name, shape] = manifest_.tensors[i];
      file.pieces.push_back({name, wholeOf(shape), {header.tensors[i].offset}});
    }
    manifest_.identity = {{"model", nlohmann::json::parse(modelJson(model_))}, {"sequenceLengthTokens", 64}};
    manifest_.precision = "fp32", manifest_.holds = {kWeight}, manifest_.files = {file};
    writeFile(checkpoint_ + "/manifest.json", manifestText(manifest_));
  }
  std::vector<float> readAll(const TensorSource& source, const std::string& name) {
    const TensorShape shape = source.tensors.at(name).shape;
    std::vector<float> values(static_cast<std::size_t>(shape.elements()));
    readSlices(source, {{name, wholeOf(shape), values.data()}});
    return values;
  }
  std::string refusal(const ModelConfig& model) {
    try {
      openHuggingFace(folder_, model);
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.problem().code, StatusCode::checkpointError);
      return failure.problem().message;
    }
    ADD_FAILURE() << "nothing was refused";
    return "";
  }
  std::string refusalWith(const std::function<void(Json*)>& change) {
    const std::string path = folder_ + "/config.json", kept = readFile(path);
    Json config = Json::parse(kept);
    change(&config);
    writeFile(path, config.dump());
    const std::string message = refusal(model_);
    writeFile(path, kept);
    return message;
  }

  Json configuration() const { return Json::parse(readFile(folder_ + "/config.json")); }
  /// A folder with this configuration and tensors.
  void writeFolder(const Json& config, const std::vector<SafetensorsEntry>& tensors) {
    fs::create_directories(folder_);
    writeFile(folder_ + "/config.json", config.dump());
    writeSafetensors(folder_ + "/model.safetensors", tensors, {});
  }

  TemporaryDirectory directory_;
  ModelConfig model_;
  std::map<std::string, std::vector<float>> weights_;
  Manifest manifest_;
  const std::string checkpoint_ = directory_.file("ck"), folder_ = directory_.file("hf");
};

const ModelConfig kLlama = {32, 2, 4, 2, 48, 70, false, 5000, 1e-6, 0.1};

class HuggingFace : public Folders, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    ModelConfig model = kLlama;
    model.tiedEmbeddings = GetParam();
    makeCheckpoint(model);
  }
};

TEST_P(HuggingFace, ExportAndImportGiveBackEveryBit) {
  const OrderedJson result = exportCommand(checkpoint_, folder_, {});
  EXPECT_TRUE(fs::exists(folder_ + "/model.safetensors"));
  EXPECT_EQ(result["parameters"], manifest_.parameters());
  const TensorSource source = openHuggingFace(folder_, model_);
  for (const auto& [name, values] : weights_) EXPECT_EQ(readAll(source, name), values) << name;

  const std::string imported = directory_.file("imported");
  importCommand(folder_, imported, 3);
  const Manifest manifest = readManifest(imported);
  EXPECT_EQ(manifest.files.size(), 3u);
  EXPECT_EQ(manifest.tensors, manifest_.tensors);
  EXPECT_TRUE(verifyCommand(imported)["ok"]);
  for (const auto& [name, values] : weights_)
    EXPECT_EQ(readAll(sourceOf(manifest, imported, kWeight), name), values) << name;
}

TEST_P(HuggingFace, TheUsualNamesAndShapesAreThere) {
  exportCommand(checkpoint_, folder_, {});
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const auto& tensor : readSafetensorsHeader(FileReader(folder_ + "/model.safetensors")).tensors)
    shapes[tensor.name] = tensor.shape;
  EXPECT_EQ(shapes.size(), GetParam() ? 20u : 21u);
  EXPECT_EQ(shapes["model.embed_tokens.weight"], (std::vector<std::int64_t>{70, 32}));
  EXPECT_EQ(shapes["model.layers.1.self_attn.k_proj.weight"], (std::vector<std::int64_t>{16, 32}));
  EXPECT_EQ(shapes["model.layers.0.mlp.down_proj.weight"], (std::vector<std::int64_t>{32, 48}));
  EXPECT_EQ(shapes["model.layers.0.post_attention_layernorm.weight"], std::vector<std::int64_t>{32});
  EXPECT_EQ(shapes["model.norm.weight"], std::vector<std::int64_t>{32});
  EXPECT_EQ(shapes.count("lm_head.weight"), GetParam() ? 0u : 1u);
  const Json config = Json::parse(readFile(folder_ + "/config.json"));
  EXPECT_EQ(config["num_key_value_heads"], 2);
  EXPECT_EQ(config["tie_word_embeddings"], GetParam());
  EXPECT_EQ(config["max_position_embeddings"], 64);
  EXPECT_EQ(config["torch_dtype"], "float32");
}

TEST_P(HuggingFace, Bfloat16InSeveralFilesIsTheRoundedValue) {
  ExportOptions options;
  options.bf16 = true, options.largestFileBytes = 5000;
  exportCommand(checkpoint_, folder_, options);
  EXPECT_FALSE(fs::exists(folder_ + "/model.safetensors"));
  const Json index = Json::parse(readFile(folder_ + "/model.safetensors.index.json"));
  EXPECT_EQ(index["weight_map"].size(), weights_.size());
  EXPECT_EQ(index["metadata"]["total_size"], 2 * manifest_.parameters());
  const TensorSource source = openHuggingFace(folder_, model_);
  EXPECT_GT(source.paths.size(), 5u);
  for (const auto& [name, values] : weights_) {
    const std::vector<float> found = readAll(source, name);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(found[i], floatFromBfloat16(bfloat16FromFloat(values[i])));
  }
}

TEST_P(HuggingFace, WhatDoesNotFitIsRefusedByName) {
  exportCommand(checkpoint_, folder_, {});
  ModelConfig other = model_;
  other.ffnHiddenSize = 64;
  EXPECT_NE(refusal(other).find("intermediate_size 48; the run's model has ffnHiddenSize 64"),
            std::string::npos);
  other = model_, other.ropeTheta = 1;
  EXPECT_NE(refusal(other).find("rope_theta"), std::string::npos);
  EXPECT_NE(refusalWith([](Json* c) { (*c)["model_type"] = "gpt2"; }).find("gpt2"), std::string::npos);
  EXPECT_NE(refusalWith([](Json* c) { (*c)["attention_bias"] = true; }).find("attention_bias"),
            std::string::npos);
  EXPECT_NE(refusalWith([](Json* c) {
              (*c)["rope_scaling"] = {{"rope_type", "llama3"}, {"factor", 8}};
            }).find("rope_scaling {\"factor\":8.0"),
            std::string::npos);
  EXPECT_NE(refusalWith([](Json* c) {
              (*c)["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 8}};
            }).find("\"dynamic\" is not supported; linear, llama3 and yarn are"),
            std::string::npos);
  EXPECT_NE(refusalWith([](Json* c) {
              (*c)["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 7.0}};
            }).find("rope_theta 7"),
            std::string::npos);
  EXPECT_NE(refusalWith([](Json* c) { (*c)["head_dim"] = 16; }).find("head_dim"), std::string::npos);
  EXPECT_NE(refusalWith([](Json* c) { c->erase("hidden_size"); }).find("hidden_size is missing"),
            std::string::npos);

  const std::string path = folder_ + "/model.safetensors";
  const SafetensorsHeader header = readSafetensorsHeader(FileReader(path));
  const auto rewritten = [&](const std::function<void(std::vector<SafetensorsEntry>*)>& change) {
    std::vector<SafetensorsEntry> entries;
    const std::vector<float> zeros(70 * 32, 0);
    for (const auto& tensor : header.tensors) entries.push_back({tensor.name, tensor.shape, zeros.data()});
    change(&entries);
    writeSafetensors(path, entries, {});
    return refusal(model_);
  };
  EXPECT_NE(rewritten([](auto* e) { e->pop_back(); }).find("holds no "), std::string::npos);
  EXPECT_NE(
      rewritten([](auto* e) { e->back().name = "model.layers.7.mlp.up_proj.weight"; }).find("model.layers.7"),
      std::string::npos);
  EXPECT_NE(rewritten([](auto* e) { std::swap((*e)[2].shape, (*e)[9].shape); }).find("the model needs"),
            std::string::npos);
  EXPECT_THROW(exportCommand(checkpoint_, folder_, {}), Failure) << "the folder exists";
}

INSTANTIATE_TEST_SUITE_P(Head, HuggingFace, ::testing::Bool(),
                         [](const auto& head) { return head.param ? "Tied" : "Untied"; });

// ---- architectures -------------------------------------------------------------------------------------------------

struct Family {
  const char* name;
  const char* type;
  void (*change)(ModelConfig*);
  std::map<std::string, Json> says;  ///< members of its configuration
};

class Families : public Folders, public ::testing::WithParamInterface<Family> {};

TEST_P(Families, AreWrittenAndReadBackBitByBit) {
  ModelConfig model = kLlama;
  GetParam().change(&model);
  makeCheckpoint(model);
  exportCommand(checkpoint_, folder_, {});
  const Json config = configuration();
  EXPECT_EQ(config["model_type"], GetParam().type);
  for (const auto& [member, value] : GetParam().says) EXPECT_EQ(config[member], value) << member;
  EXPECT_EQ(modelJson(huggingFaceFolder(folder_).model), modelJson(model));
  const TensorSource source = openHuggingFace(folder_, model);
  EXPECT_EQ(source.tensors.size(), weights_.size());
  for (const auto& [name, values] : weights_) EXPECT_EQ(readAll(source, name), values) << name;
  const std::string other = refusal(kLlama);
  EXPECT_NE(other.find("the run's model has "), std::string::npos) << other;
}

INSTANTIATE_TEST_SUITE_P(
    Models, Families,
    ::testing::Values(
        Family{"Llama31",
               "llama",
               [](ModelConfig* m) {
                 m->ropeScaling = {.kind = RopeScalingKind::llama3, .factor = 8, .originalPositions = 8192};
               },
               {{"rope_scaling",
                 {{"rope_type", "llama3"},
                  {"factor", 8.0},
                  {"low_freq_factor", 1.0},
                  {"high_freq_factor", 4.0},
                  {"original_max_position_embeddings", 8192}}}}},
        Family{"Mistral",
               "mistral",
               [](ModelConfig* m) { m->slidingWindowTokens = 16, m->givenHeadSize = 16; },
               {{"sliding_window", 16}, {"head_dim", 16}}},
        Family{"Qwen2Yarn",
               "qwen2",
               [](ModelConfig* m) {
                 m->queryKeyValueBias = true;
                 m->ropeScaling = {.kind = RopeScalingKind::yarn, .factor = 4, .originalPositions = 32};
               },
               {{"use_sliding_window", false}, {"sliding_window", nullptr}}},
        Family{"Qwen2Window",
               "qwen2",
               [](ModelConfig* m) { m->queryKeyValueBias = true, m->slidingWindowTokens = 9; },
               {{"use_sliding_window", true}, {"sliding_window", 9}, {"max_window_layers", 0}}},
        Family{"Qwen3",
               "qwen3",
               [](ModelConfig* m) {
                 m->queryKeyNorm = true, m->givenHeadSize = 20;
                 m->ropeScaling = {.kind = RopeScalingKind::linear, .factor = 2};
               },
               {{"head_dim", 20}, {"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}}}),
    [](const auto& family) { return std::string(family.param.name); });

TEST_F(Folders, ModelsThatNoArchitectureHasAreNotWritten) {
  ModelConfig model = kLlama;
  model.queryKeyNorm = model.queryKeyValueBias = true;
  makeCheckpoint(model);
  try {
    exportCommand(checkpoint_, folder_, {});
    ADD_FAILURE() << "it was written";
  } catch (const Failure& failure) {
    EXPECT_NE(failure.problem().message.find("both norms of heads and biases"), std::string::npos);
  }
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(Folders, OfWhichSomeLayersHaveAWindowAreRefused) {
  ModelConfig model = kLlama;
  model.queryKeyValueBias = true;
  makeCheckpoint(model);
  exportCommand(checkpoint_, folder_, {});
  EXPECT_NE(refusalWith([](Json* c) {
              (*c)["use_sliding_window"] = true, (*c)["sliding_window"] = 8, (*c)["max_window_layers"] = 1;
            }).find("max_window_layers 1 leaves some layers without a window"),
            std::string::npos);
  EXPECT_NE(refusalWith([](Json* c) {
              (*c)["use_sliding_window"] = true, (*c)["sliding_window"] = 8, (*c)["max_window_layers"] = 0;
              (*c)["layer_types"] = {"full_attention", "sliding_attention"};
            }).find("layer_types are of several kinds"),
            std::string::npos);
  EXPECT_NE(refusalWith([](Json* c) {
              (*c)["use_sliding_window"] = true, (*c)["sliding_window"] = 8, (*c)["max_window_layers"] = 2;
              (*c)["layer_types"] = {"sliding_attention", "sliding_attention"};
            }).find("sliding_window 8; the run's model has slidingWindowTokens 0"),
            std::string::npos);
}

TEST_F(Folders, OfMistralHaveAWindowUnlessTheySayNone) {
  ModelConfig model = kLlama;
  model.slidingWindowTokens = 8;
  makeCheckpoint(model);
  exportCommand(checkpoint_, folder_, {});
  Json config = configuration();
  config["sliding_window"] = nullptr;
  writeFile(folder_ + "/config.json", config.dump());
  EXPECT_EQ(huggingFaceFolder(folder_).model.slidingWindowTokens, 0);
  config.erase("sliding_window");
  writeFile(folder_ + "/config.json", config.dump());
  EXPECT_EQ(huggingFaceFolder(folder_).model.slidingWindowTokens, 4096);
}

/// InternLM2 keeps the three projections as one matrix: of each key/value head the rows of its query heads, its key's, its value's.
TEST_F(Folders, OfInternLm2AreReadThroughTheirOneMatrix) {
  makeCheckpoint(kLlama);
  const std::int64_t size = model_.headSize(), readers = model_.heads / model_.kvHeads,
                     width = model_.hiddenSize;
  std::vector<std::vector<float>> fused;
  std::vector<SafetensorsEntry> tensors;
  const auto add = [&](const std::string& there, std::vector<std::int64_t> shape, const std::string& here) {
    tensors.push_back({there, std::move(shape), weights_.at(here).data()});
  };
  add("model.tok_embeddings.weight", {70, 32}, "embedding");
  fused.reserve(static_cast<std::size_t>(model_.layers));
  for (std::int64_t layer = 0; layer < model_.layers; ++layer) {
    const std::string here = "layers." + std::to_string(layer) + ".", there = "model." + here;
    fused.emplace_back();
    const auto append = [&](const char* name, std::int64_t firstRow, std::int64_t rows) {
      const float* const from = weights_.at(here + name).data() + firstRow * width;
      fused.back().insert(fused.back().end(), from, from + rows * width);
    };
    for (std::int64_t head = 0; head < model_.kvHeads; ++head) {
      append("wq", head * readers * size, readers * size);
      append("wk", head * size, size);
      append("wv", head * size, size);
    }
    tensors.push_back({there + "attention.wqkv.weight", {64, 32}, fused.back().data()});
    add(there + "attention_norm.weight", {32}, here + "attentionNorm");
    add(there + "attention.wo.weight", {32, 32}, here + "wo");
    add(there + "ffn_norm.weight", {32}, here + "mlpNorm");
    add(there + "feed_forward.w1.weight", {48, 32}, here + "gate");
    add(there + "feed_forward.w3.weight", {48, 32}, here + "up");
    add(there + "feed_forward.w2.weight", {32, 48}, here + "down");
  }
  add("model.norm.weight", {32}, "finalNorm");
  add("output.weight", {70, 32}, "head");
  const Json config = {{"model_type", "internlm2"},
                       {"hidden_size", 32},
                       {"num_hidden_layers", 2},
                       {"num_attention_heads", 4},
                       {"num_key_value_heads", 2},
                       {"intermediate_size", 48},
                       {"vocab_size", 70},
                       {"tie_word_embeddings", false},
                       {"rope_theta", 5000},
                       {"rms_norm_eps", 1e-6},
                       {"bias", false},
                       {"hidden_act", "silu"}};
  writeFolder(config, tensors);
  const TensorSource source = openHuggingFace(folder_, model_);
  for (const auto& [name, values] : weights_) EXPECT_EQ(readAll(source, name), values) << name;
  EXPECT_NE(refusalWith([](Json* c) { (*c)["bias"] = true; }).find("bias true is not supported"),
            std::string::npos);
  EXPECT_NE(refusalWith([](Json* c) { c->erase("bias"); }).find("bias true is not supported"),
            std::string::npos);
}

}  // namespace
}  // namespace internevo::trainer::testing
