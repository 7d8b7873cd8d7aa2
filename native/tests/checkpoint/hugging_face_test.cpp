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

class HuggingFace : public ::testing::TestWithParam<bool> {
 protected:
  /// A checkpoint of random weights in one file, and its export.
  void SetUp() override {
    model_ = {32, 2, 4, 2, 48, 70, GetParam(), 5000, 1e-6, 0.1};
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

  TemporaryDirectory directory_;
  ModelConfig model_;
  std::map<std::string, std::vector<float>> weights_;
  Manifest manifest_;
  const std::string checkpoint_ = directory_.file("ck"), folder_ = directory_.file("hf");
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
            }).find("llama3"),
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

}  // namespace
}  // namespace internevo::trainer::testing
