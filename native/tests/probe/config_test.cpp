#include "probe/config.h"

#include <gtest/gtest.h>

namespace internevo::probe {
namespace {

Json valid() {
  return Json::parse(R"({
    "protocol": 1, "threadsPerRank": 2, "minimumSamples": 3, "maximumSeconds": 0.5, "targetRelativeSpread": 0.1,
    "collectives": [{"op": "all-to-all", "bytes": 4096, "groups": [[0, 2], [3, 1]], "placement": "mixed"}],
    "modules": [{"module": "attention", "pass": "backward", "precision": "bf16", "batch": 1, "sequence": 64,
                 "heads": 4, "kvHeads": 2, "headSize": 8}],
    "overlaps": [{"module": {"module": "linear", "pass": "forward", "precision": "fp32", "rows": 1, "inputs": 2,
                             "outputs": 3},
                  "collective": {"op": "broadcast", "bytes": 1, "groups": [[1]], "placement": "intra-node"}}],
    "device": true})");
}

TEST(ProbeConfig, ReadsEveryField) {
  Config config;
  Problem problem;
  ASSERT_TRUE(parseConfig(valid().dump(), 4, &config, &problem)) << problem.message;
  EXPECT_EQ(config.threadsPerRank, 2);
  EXPECT_EQ(config.minimumSamples, 3);
  EXPECT_EQ(config.maximumSeconds, 0.5);
  EXPECT_EQ(config.targetRelativeSpread, 0.1);
  EXPECT_TRUE(config.device);
  ASSERT_EQ(config.collectives.size(), 1u);
  EXPECT_EQ(config.collectives[0].op, Collective::allToAll);
  EXPECT_EQ(config.collectives[0].groups, (std::vector<std::vector<int>>{{0, 2}, {3, 1}}));
  ASSERT_EQ(config.modules.size(), 1u);
  EXPECT_EQ(config.modules[0].precision, DataType::bfloat16);
  EXPECT_EQ(config.modules[0].kvHeads, 2);
  ASSERT_EQ(config.overlaps.size(), 1u);
  EXPECT_EQ(config.overlaps[0].module.outputs, 3);
  EXPECT_EQ(config.overlaps[0].collective.bytes, 1);
  EXPECT_EQ(config.deviceKind, DeviceKind::cpu) << "unless the document names another";
  Json onGpus = valid();
  onGpus["deviceKind"] = "cuda";
  ASSERT_TRUE(parseConfig(onGpus.dump(), 4, &config, &problem)) << problem.message;
  EXPECT_EQ(config.deviceKind, DeviceKind::cuda);
}

struct Refusal {
  const char* name;
  const char* patch;  // JSON merge patch or JSON patch
  const char* field;
};

class ProbeConfigRefuses : public testing::TestWithParam<Refusal> {};

TEST_P(ProbeConfigRefuses, NamingFieldAndRemedy) {
  const Json document = valid().patch(Json::parse(GetParam().patch));
  Config config;
  Problem problem;
  ASSERT_FALSE(parseConfig(document.dump(), 4, &config, &problem));
  EXPECT_EQ(problem.code, StatusCode::badConfig);
  EXPECT_EQ(problem.field, GetParam().field) << problem.message;
  EXPECT_NE(problem.message.find(GetParam().field), std::string::npos);
  EXPECT_FALSE(problem.remedy.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Documents, ProbeConfigRefuses,
    testing::Values(
        Refusal{"unknown", R"([{"op":"add","path":"/extra","value":1}])", "extra"},
        Refusal{"unknownInside", R"([{"op":"add","path":"/modules/0/width","value":1}])", "modules[0].width"},
        Refusal{"missing", R"([{"op":"remove","path":"/device"}])", "device"},
        Refusal{"deviceKind", R"([{"op":"add","path":"/deviceKind","value":"tpu"}])", "deviceKind"},
        Refusal{"protocol", R"([{"op":"replace","path":"/protocol","value":2}])", "protocol"},
        Refusal{"noTime", R"([{"op":"replace","path":"/maximumSeconds","value":0}])", "maximumSeconds"},
        Refusal{"fraction", R"([{"op":"replace","path":"/minimumSamples","value":1.5}])", "minimumSamples"},
        Refusal{"noBytes", R"([{"op":"replace","path":"/collectives/0/bytes","value":0}])",
                "collectives[0].bytes"},
        Refusal{"op", R"([{"op":"replace","path":"/collectives/0/op","value":"gossip"}])",
                "collectives[0].op"},
        Refusal{"notAPair",
                R"([{"op":"replace","path":"/collectives/0/op","value":"point-to-point"},)"
                R"({"op":"replace","path":"/collectives/0/groups","value":[[0,1,2]]}])",
                "collectives[0].groups"},
        Refusal{"rank", R"([{"op":"replace","path":"/collectives/0/groups","value":[[0,4]]}])",
                "collectives[0].groups"},
        Refusal{"twice", R"([{"op":"replace","path":"/collectives/0/groups","value":[[0,1],[1,2]]}])",
                "collectives[0].groups"},
        Refusal{"uneven", R"([{"op":"replace","path":"/collectives/0/groups","value":[[0,1],[2]]}])",
                "collectives[0].groups"},
        Refusal{"empty", R"([{"op":"replace","path":"/collectives/0/groups","value":[]}])",
                "collectives[0].groups"},
        Refusal{"module", R"([{"op":"replace","path":"/modules/0/module","value":"conv"}])",
                "modules[0].module"},
        Refusal{"pass", R"([{"op":"replace","path":"/modules/0/pass","value":"update"}])", "modules[0].pass"},
        Refusal{"heads", R"([{"op":"replace","path":"/modules/0/kvHeads","value":3}])", "modules[0].kvHeads"},
        Refusal{"overlap", R"([{"op":"replace","path":"/overlaps/0/module/rows","value":"1"}])",
                "overlaps[0].module.rows"}),
    [](const auto& refusal) { return std::string(refusal.param.name); });

TEST(ProbeConfig, RefusesWhatIsNotJson) {
  Config config;
  Problem problem;
  EXPECT_FALSE(parseConfig("{", 1, &config, &problem));
  EXPECT_EQ(problem.code, StatusCode::badConfig);
  EXPECT_FALSE(parseConfig("[]", 1, &config, &problem));
}

}  // namespace
}  // namespace internevo::probe
