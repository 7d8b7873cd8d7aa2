// Bad configurations are refused by field, value and remedy; good ones are read as they are.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "support.h"
#include "trainer/failure.h"

namespace internevo::trainer::testing {
namespace {

using Json = nlohmann::json;

Json goodDocument() {
  Config c = smallConfig("d.tokens");
  c.plan.dataParallel = 2, c.plan.sequenceParallel = 2, c.plan.parameterSharding = 2,
  c.plan.optimizerStateSharding = 2;
  c.mesh = meshOf(c.plan);
  c.checkpoint = CheckpointConfig{"ck", 2, 3, true};
  c.memoryLimitBytes = 1 << 30;
  return Json::parse(documentOf(c));
}

Problem problemOf(const std::string& text) {
  try {
    validatePlan(parseConfig(text));
  } catch (const Failure& failure) {
    return failure.problem();
  }
  return {StatusCode::ok, "", "", "", ""};
}

Problem problemOf(const std::function<void(Json&)>& change) {
  Json document = goodDocument();
  change(document);
  return problemOf(document.dump());
}

TEST(Configuration, IsReadAsWritten) {
  const Config c = parseConfig(goodDocument().dump());
  EXPECT_NO_THROW(validatePlan(c));
  EXPECT_EQ(documentOf(c), goodDocument().dump());
}

TEST(Configuration, PrecisionsSayWhatIsStoredInTwoBytes) {
  const auto read = [](const char* name) {
    Json document = goodDocument();
    document["precision"] = name;
    const Config c = parseConfig(document.dump());
    EXPECT_STREQ(c.precisionName(), name);
    return std::pair{c.precision, c.gradientPrecision};
  };
  EXPECT_EQ(read("fp32"), std::pair(DataType::float32, DataType::float32));
  EXPECT_EQ(read("bf16"), std::pair(DataType::bfloat16, DataType::float32));
  EXPECT_EQ(read("bf16-grad16"), std::pair(DataType::bfloat16, DataType::bfloat16));
}

struct BadValue {
  const char* pointer;
  const char* value;  ///< JSON
  const char* field;
};

class BadValues : public ::testing::TestWithParam<BadValue> {};

TEST_P(BadValues, AreNamedWithValueAndRemedy) {
  const BadValue& bad = GetParam();
  const Json value = Json::parse(bad.value);
  const Problem problem = problemOf([&](Json& d) { d[Json::json_pointer(bad.pointer)] = value; });
  EXPECT_EQ(problem.code, StatusCode::badConfig) << problem.message;
  EXPECT_EQ(problem.field, bad.field);
  EXPECT_NE(problem.message.find(bad.field), std::string::npos) << problem.message;
  EXPECT_FALSE(problem.remedy.empty());
  std::string ownField = std::string(bad.pointer).substr(1);
  std::replace(ownField.begin(), ownField.end(), '/', '.');
  if (value.is_number() && bad.field == ownField) {  // else the value of what does not fit together with it
    EXPECT_EQ(problem.valueJson, value.dump());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Fields, BadValues,
    ::testing::Values(
        BadValue{"/protocol", "2", "protocol"}, BadValue{"/model/hiddenSize", "0", "model.hiddenSize"},
        BadValue{"/model/hiddenSize", "\"48\"", "model.hiddenSize"},
        BadValue{"/model/layers", "2.5", "model.layers"}, BadValue{"/model/layers", "-1", "model.layers"},
        BadValue{"/model/layers", "18446744073709551615", "model.layers"},
        BadValue{"/model/heads", "5", "model.heads"}, BadValue{"/model/kvHeads", "3", "model.kvHeads"},
        BadValue{"/model/tiedEmbeddings", "1", "model.tiedEmbeddings"},
        BadValue{"/model/normEpsilon", "0", "model.normEpsilon"},
        BadValue{"/model/headSize", "0", "model.headSize"},
        BadValue{"/model/headSize", "7", "model.headSize"},
        BadValue{"/model/queryKeyNorm", "1", "model.queryKeyNorm"},
        BadValue{"/model/slidingWindowTokens", "0", "model.slidingWindowTokens"},
        BadValue{"/model/ropeScaling", "8", "model.ropeScaling"},
        BadValue{"/model/ropeScaling", "{\"kind\":\"dynamic\"}", "model.ropeScaling.kind"},
        BadValue{"/model/ropeScaling", "{\"kind\":\"llama3\",\"factor\":8}",
                 "model.ropeScaling.originalPositions"},
        BadValue{"/model/ropeScaling", "{\"kind\":\"linear\",\"factor\":8,\"betaFast\":2}",
                 "model.ropeScaling.betaFast"},
        BadValue{"/model/ropeScaling", "{\"kind\":\"linear\",\"factor\":0.5}", "model.ropeScaling"},
        BadValue{"/model/surprise", "1", "model.surprise"}, BadValue{"/surprise", "{}", "surprise"},
        BadValue{"/sequenceLengthTokens", "25", "plan.sequenceParallel"},
        BadValue{"/precision", "\"fp16\"", "precision"}, BadValue{"/plan", "[]", "plan"},
        BadValue{"/plan/microBatchSize", "0", "plan.microBatchSize"},
        BadValue{"/plan/recompute", "0", "plan.recompute"},
        BadValue{"/plan/parameterSharding", "3", "plan.parameterSharding"},
        BadValue{"/plan/optimizerStateSharding", "4", "plan.optimizerStateSharding"},
        BadValue{"/plan/gradientSharding", "4", "plan.gradientSharding"},
        BadValue{"/mesh/worldSize", "8", "mesh.worldSize"},
        BadValue{"/mesh/sequenceParallel", "[[0],[1],[2],[3]]", "mesh.sequenceParallel"},
        BadValue{"/mesh/sequenceParallel", "[[0,1],[2,4]]", "mesh.sequenceParallel"},
        BadValue{"/mesh/sequenceParallel", "[[0,1]]", "mesh.sequenceParallel"},
        BadValue{"/mesh/dataParallel", "[[0,1],[0,1]]", "mesh.dataParallel"},
        BadValue{"/mesh/gradientReplicas", "[[0]]", "mesh.gradientReplicas"},
        BadValue{"/mesh/parameterSharding", "\"all\"", "mesh.parameterSharding"},
        BadValue{"/optimizer/beta1", "1", "optimizer.beta1"},
        BadValue{"/optimizer/peakLearningRate", "0", "optimizer.peakLearningRate"},
        BadValue{"/optimizer/minLearningRate", "0.5", "optimizer.minLearningRate"},
        BadValue{"/optimizer/clipGlobalNorm", "-1", "optimizer.clipGlobalNorm"},
        BadValue{"/data/path", "\"\"", "data.path"}, BadValue{"/seed", "-1", "seed"},
        BadValue{"/data", "{\"sources\":[]}", "data.sources"},
        BadValue{"/data/sources", "[]", "data.sources"},
        BadValue{"/data", "{\"sources\":[{\"path\":\"a\"}]}", "data.sources.0.share"},
        BadValue{"/data", "{\"sources\":[{\"path\":\"a\",\"share\":1},{\"path\":\"\",\"share\":1}]}",
                 "data.sources.1.path"},
        BadValue{"/data", "{\"sources\":[{\"path\":\"a\",\"share\":65536},{\"path\":\"b\",\"share\":1}]}",
                 "data.sources"},
        BadValue{"/data", "{\"path\":\"a\",\"sources\":[{\"path\":\"b\",\"share\":1}]}", "data.path"},
        BadValue{"/steps", "0", "steps"}, BadValue{"/checkpoint/resume", "\"yes\"", "checkpoint.resume"},
        BadValue{"/checkpoint/keepLast", "0", "checkpoint.keepLast"},
        BadValue{"/memoryLimitBytes", "0", "memoryLimitBytes"},
        BadValue{"/leaveFree", "{\"share\":1.5,\"bytes\":1}", "leaveFree.share"},
        BadValue{"/leaveFree", "{\"share\":0.5}", "leaveFree.bytes"},
        BadValue{"/threadsPerRank", "0", "threadsPerRank"},
        BadValue{"/deterministic", "\"yes\"", "deterministic"},
        BadValue{"/plan/forwardOverlap", "\"layer\"", "plan.forwardOverlap"},
        BadValue{"/plan/backwardOverlap", "\"inter-layer\"", "plan.backwardOverlap"},
        BadValue{"/plan/gateUp", "\"dropped\"", "plan.gateUp"},
        BadValue{"/plan/gateUp", "true", "plan.gateUp"},
        BadValue{"/timeline", "{\"path\":\"\",\"firstStep\":1,\"steps\":1}", "timeline.path"},
        BadValue{"/timeline", "{\"path\":\"t\",\"firstStep\":0,\"steps\":1}", "timeline.firstStep"},
        BadValue{"/timeline", "{\"path\":\"t\",\"firstStep\":1,\"steps\":1,\"lanes\":3}", "timeline.lanes"},
        BadValue{"/watchdog", "{\"silenceSeconds\":1}", "watchdog.silenceSeconds"},
        BadValue{"/watchdog", "{\"beatSeconds\":0.01}", "watchdog.beatSeconds"},
        BadValue{"/gradientDumpPath", "1", "gradientDumpPath"}));

TEST(Configuration, OverlapTimelineAndWatchdogMayBeLeftOutAndAreReadWhenGiven) {
  Config c = smallConfig("d.tokens");
  Json document = Json::parse(documentOf(c));
  document.erase("watchdog");
  c = parseConfig(document.dump());
  EXPECT_FALSE(c.plan.overlaps() || c.timeline.has_value());
  EXPECT_TRUE(c.watchdog.has_value());
  document["plan"]["forwardOverlap"] = "inter-layer", document["plan"]["backwardOverlap"] = "intra-layer";
  document["timeline"] = {{"path", "t.json"}, {"firstStep", 4}, {"steps", 2}};
  document["watchdog"] = {{"silenceSeconds", 9}};
  c = parseConfig(document.dump());
  EXPECT_EQ(c.plan.forwardOverlap, ForwardOverlap::interLayer);
  EXPECT_EQ(c.plan.backwardOverlap, BackwardOverlap::intraLayer);
  EXPECT_EQ(Json::parse(planJson(c.plan)), document["plan"]);
  for (const char* forward : {"block", "intra-layer"}) {
    Json other = document;
    other["plan"]["forwardOverlap"] = forward;
    EXPECT_EQ(Json::parse(planJson(parseConfig(other.dump()).plan)), other["plan"]);
  }
  EXPECT_EQ(c.timeline->firstStep, 4);
  EXPECT_EQ(c.timeline->capacityEvents, 200000);
  EXPECT_EQ(c.watchdog->silenceSeconds, 9);
  document["watchdog"] = nullptr, document["timeline"] = nullptr;
  EXPECT_FALSE(parseConfig(document.dump()).watchdog || parseConfig(document.dump()).timeline);
}

TEST(Configuration, WhatStaysFreeOfDisksMayBeLeftOutAndIsReadWhenGiven) {
  Config c = smallConfig("d.tokens");
  EXPECT_EQ(parseConfig(documentOf(c)).leaveFree.bytes, 0);
  c.leaveFree = {0.25, 4096};
  const DiskMargin read = parseConfig(documentOf(c)).leaveFree;
  EXPECT_EQ(read.share, 0.25);
  EXPECT_EQ(read.bytes, 4096);
}

TEST(Configuration, AMixtureHasSourcesWithShares) {
  Config c = smallConfig("d.tokens");
  EXPECT_TRUE(parseConfig(documentOf(c)).data.sources.empty());
  c.data.sources = {{"a.tokens", DataConfig::Format::byExtension, 9},
                    {"b.tokens", DataConfig::Format::byExtension, 1}};
  c.data.packing = DataConfig::Packing::documents;
  const Config read = parseConfig(documentOf(c));
  ASSERT_EQ(read.data.sources.size(), 2u);
  EXPECT_EQ(read.data.sources[1].path, "b.tokens");
  EXPECT_EQ(read.data.sources[0].share, 9);
  EXPECT_TRUE(read.packsDocuments());
}

TEST(Configuration, SchedulesAndHeldOutDataMayBeLeftOutAndAreReadWhenGiven) {
  Config c = smallConfig("d.tokens");
  EXPECT_EQ(parseConfig(documentOf(c)).optimizer.schedule, LearningRateSchedule::cosine);
  EXPECT_FALSE(parseConfig(documentOf(c)).validation);
  c.optimizer.schedule = LearningRateSchedule::warmupStableDecay, c.optimizer.annealingSteps = 18;
  c.data.packing = DataConfig::Packing::documents;
  c.validation = ValidationConfig{{.path = "v.tokens"}, 7, 3};
  const Config read = parseConfig(documentOf(c));
  EXPECT_EQ(read.optimizer.schedule, LearningRateSchedule::warmupStableDecay);
  EXPECT_EQ(read.optimizer.annealingSteps, 18);
  ASSERT_TRUE(read.validation);
  EXPECT_EQ(read.validation->data.path, "v.tokens");
  EXPECT_EQ(read.validation->data.packing, DataConfig::Packing::documents) << "as the training data";
  EXPECT_EQ(read.validation->everySteps, 7);
  EXPECT_EQ(read.validation->batches, 3);
  c.optimizer.annealingSteps = 19;  // 2 steps of warm-up, and 20 until the least
  try {
    parseConfig(documentOf(c));
    FAIL() << "more steps than there are";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.problem().field, "optimizer.annealingSteps");
    EXPECT_EQ(failure.problem().remedy, "give at most 18");
  }
}

TEST(Configuration, NamesAMissingMember) {
  const Problem problem = problemOf([](Json& d) { d["plan"].erase("recompute"); });
  EXPECT_EQ(problem.code, StatusCode::badConfig);
  EXPECT_EQ(problem.field, "plan.recompute");
}

TEST(Configuration, SaysWhereTextIsNotJson) {
  const Problem problem = problemOf(std::string("{\"protocol\": 1,"));
  EXPECT_EQ(problem.code, StatusCode::badConfig);
  EXPECT_NE(problem.message.find("not JSON"), std::string::npos);
  EXPECT_EQ(problemOf(std::string("\xff\xfe")).code, StatusCode::badConfig);
}

TEST(Configuration, CutsLongValuesInMessages) {
  const Problem problem = problemOf([](Json& d) { d["precision"] = std::string(100000, 'x'); });
  EXPECT_EQ(problem.field, "precision");
  EXPECT_LT(problem.message.size(), 1000u);
}

/// The problem of smallConfig (5 layers, 12 sequences) under a plan, with the mesh that belongs to it.
Problem problemOfPlan(const std::function<void(Config&)>& change) {
  Config c = smallConfig("d.tokens");
  c.model.layers = 5;
  change(c);
  c.mesh = meshOf(c.plan);
  return problemOf(documentOf(c));
}

struct BadPlan {
  /// As the planner names it.
  const char* constraint;
  const char* field;
  std::function<void(Config&)> change;
};

TEST(Plan, FactorsThatDoNotFitTheModelAreNamedWithARemedy) {
  const std::vector<BadPlan> plans = {
      {"tensor-sequence-mismatch", "plan.tensorParallel",
       [](Config& c) { c.plan.tensorParallel = 2, c.plan.sequenceParallel = 4; }},
      {"tensor-not-divisible", "plan.tensorParallel",
       [](Config& c) { c.plan.tensorParallel = c.plan.sequenceParallel = 4, c.model.ffnHiddenSize = 82; }},
      {"tensor-not-divisible", "plan.tensorParallel",
       [](Config& c) { c.plan.tensorParallel = c.plan.sequenceParallel = 4, c.model.vocabularySize = 5; }},
      {"heads-not-divisible", "plan.sequenceParallel",
       [](Config& c) { c.plan.tensorParallel = c.plan.sequenceParallel = 8; }},
      {"more-stages-than-layers", "plan.pipelineParallel", [](Config& c) { c.plan.pipelineParallel = 6; }},
      {"chunks-not-possible", "plan.pipelineChunks", [](Config& c) { c.plan.pipelineChunks = 2; }},
      {"chunks-not-possible", "plan.pipelineChunks",
       [](Config& c) { c.plan.pipelineParallel = 2, c.plan.pipelineChunks = 2, c.plan.microBatches = 3; }},
      {"chunks-not-possible", "plan.pipelineChunks",
       [](Config& c) { c.plan.pipelineParallel = 2, c.plan.pipelineChunks = 3, c.plan.microBatches = 2; }},
      {"recompute-layers-not-possible", "plan.recomputeLayers",
       [](Config& c) { c.plan.pipelineParallel = 2, c.plan.recomputeLayers = 4; }},
      {"recompute-layers-not-possible", "plan.recomputeLayers",
       [](Config& c) { c.plan.recompute = true, c.plan.recomputeLayers = 1; }},
      {"gate-up-not-possible", "plan.gateUp",
       [](Config& c) { c.plan.recompute = true, c.plan.gateUp = GateUp::again; }},
      {"gate-up-not-possible", "plan.gateUp",
       [](Config& c) { c.plan.recomputeLayers = c.model.layers, c.plan.gateUp = GateUp::again; }},
      {"gate-up-not-possible", "plan.gateUp",
       [](Config& c) { c.plan.recompute = true, c.plan.gateUp = GateUp::host; }},
      {"sequence-not-divisible", "plan.sequenceParallel",
       [](Config& c) { c.sequenceLengthTokens = 25, c.plan.sequenceParallel = 2; }},
      {"context-not-possible", "plan.contextParallel", [](Config& c) { c.plan.contextParallel = 4; }},
      {"sharding-not-divisible", "plan.parameterSharding",
       [](Config& c) { c.plan.dataParallel = 4, c.plan.parameterSharding = 3; }},
      {"gradient-sharding-not-allowed", "plan.gradientSharding",
       [](Config& c) { c.plan.gradientSharding = 4; }},
  };
  for (const BadPlan& bad : plans) {
    const Problem problem = problemOfPlan(bad.change);
    EXPECT_EQ(problem.code, StatusCode::badConfig) << bad.field;
    EXPECT_EQ(problem.field, bad.field) << problem.message;
    EXPECT_EQ(problem.message.find(std::string(bad.constraint) + ": " + bad.field), 0u) << problem.message;
    EXPECT_FALSE(problem.valueJson.empty() || problem.remedy.empty()) << problem.message;
  }
  const auto good = [](Config& c) {
    c.plan.pipelineParallel = 2, c.plan.tensorParallel = c.plan.sequenceParallel = 4, c.plan.dataParallel = 2;
    c.plan.microBatches = 4, c.plan.pipelineChunks = 2, c.plan.recomputeLayers = 3,
    c.plan.parameterSharding = 2;
  };
  EXPECT_EQ(problemOfPlan(good).code, StatusCode::ok) << problemOfPlan(good).message;
}

TEST(Plan, ChunksAndRecomputedLayersMayBeLeftOutAndAreReadWhenGiven) {
  Json document = goodDocument();
  EXPECT_FALSE(document["plan"].contains("pipelineChunks") || document["plan"].contains("recomputeLayers"));
  document["plan"]["recomputeLayers"] = 2, document["plan"]["pipelineChunks"] = 1;
  const Config c = parseConfig(document.dump());
  EXPECT_EQ(c.plan.recomputeLayers, 2);
  EXPECT_EQ(c.plan.pipelineChunks, 1);
  document["plan"]["pipelineChunks"] = 0;
  EXPECT_EQ(problemOf(document.dump()).field, "plan.pipelineChunks");
}

TEST(Plan, GateUpIsKeptUnlessAskedForAndOnlyThenWritten) {
  Json document = goodDocument();
  EXPECT_FALSE(document["plan"].contains("gateUp"));
  EXPECT_EQ(parseConfig(document.dump()).plan.gateUp, GateUp::kept);
  document["plan"]["gateUp"] = "again";
  const Config c = parseConfig(document.dump());
  EXPECT_EQ(c.plan.gateUp, GateUp::again);
  EXPECT_EQ(Json::parse(planJson(c.plan)), document["plan"]);
  EXPECT_EQ(problemOf(document.dump()).code, StatusCode::ok) << problemOf(document.dump()).message;
  document["plan"]["recomputeLayers"] = 1;
  EXPECT_EQ(problemOf(document.dump()).code, StatusCode::ok) << problemOf(document.dump()).message;
  document["plan"]["recomputeLayers"] = 0, document["plan"]["recompute"] = true;
  const Problem problem = problemOf(document.dump());
  EXPECT_EQ(problem.message,
            "gate-up-not-possible: plan.gateUp again is given although plan.recompute is true, which makes "
            "all layers again as a whole");
  EXPECT_EQ(problem.valueJson, "\"again\"");
  EXPECT_EQ(problem.remedy, "leave it out");
  document["plan"]["gateUp"] = "kept";
  EXPECT_EQ(problemOf(document.dump()).code, StatusCode::ok) << problemOf(document.dump()).message;
  EXPECT_FALSE(Json::parse(planJson(parseConfig(document.dump()).plan)).contains("gateUp"));
}

TEST(Plan, MeshesHaveEveryRankOnceInGroupsOfThePlansSize) {
  Config c = smallConfig("d.tokens");
  c.plan.pipelineParallel = 2, c.plan.tensorParallel = c.plan.sequenceParallel = 2, c.plan.dataParallel = 2;
  c.plan.parameterSharding = 2;
  c.mesh = meshOf(c.plan);
  const Json good = Json::parse(documentOf(c));
  for (const char* list : {"tensorParallel", "sequenceParallel", "dataParallel", "pipelineParallel",
                           "parameterSharding", "optimizerStateSharding", "gradientReplicas"}) {
    const Json groups = good["mesh"][list];
    const auto problemWith = [&](const Json& other) {
      Json document = good;
      document["mesh"][list] = other;
      return problemOf(document.dump());
    };
    Json twice = groups, merged = groups, absent = groups, beyond = groups;
    twice[0][0] = twice[1][0];
    merged[0].insert(merged[0].end(), merged[1].begin(), merged[1].end());
    merged.erase(1);
    absent.erase(0);
    beyond[0][0] = 8;
    for (const Json& bad : {twice, merged, absent, beyond})
      EXPECT_EQ(problemWith(bad).field, std::string("mesh.") + list) << bad;
    // Which ranks are together is the planner's.
    Json exchanged = groups;
    std::swap(exchanged[0][0], exchanged[1][0]);
    EXPECT_EQ(problemWith(exchanged).code, StatusCode::ok) << exchanged;
  }
}

TEST(Configuration, FieldsThatAModelMayLackAreWrittenOnlyWhereItHasThem) {
  EXPECT_EQ(Json::parse(modelJson(smallConfig("").model)).size(), 10u);
  for (const ModelConfig& model : {qwen2Model(), qwen3Model(), llama3Model(), mistralModel()}) {
    Config c = smallConfig("d.tokens");
    c.model = model;
    const std::string document = documentOf(c);
    EXPECT_EQ(documentOf(parseConfig(document)), document);
    EXPECT_EQ(modelJson(parseModel(modelJson(model))), modelJson(model));
    EXPECT_GT(Json::parse(modelJson(model)).size(), 10u);
  }
}

TEST(Configuration, HeadsOfTheirOwnSizeNeedNotDivideTheHiddenSize) {
  Config c = smallConfig("d.tokens");
  c.model.hiddenSize = 50;
  EXPECT_EQ(problemOf(documentOf(c)).field, "model.heads");
  c.model.givenHeadSize = 12;
  EXPECT_NO_THROW(validatePlan(c));
}

TEST(Plan, KeyHeadsThatNeitherSplitNorReplicateEvenlyAreUnsupported) {
  Config c = smallConfig("d.tokens");
  c.model.hiddenSize = 96, c.model.heads = 12, c.model.kvHeads = 4;
  c.plan.sequenceParallel = 6;
  c.mesh = meshOf(c.plan);
  const Problem problem = problemOf(documentOf(c));
  EXPECT_EQ(problem.code, StatusCode::planUnsupported);
  EXPECT_EQ(problem.field, "plan.sequenceParallel");
}

}  // namespace
}  // namespace internevo::trainer::testing
