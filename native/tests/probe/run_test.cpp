// The whole probe on small sizes: every operation and module is measured on every number of ranks.
#include "probe/run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "installed.h"
#include "mpi_session.h"
#include "probe/points.h"

namespace internevo::probe {
namespace {

#ifdef INTERNEVO_PROBE_ON_MODEL  // the same on the model of a device (tests/cuda)
constexpr DeviceKind kDevice = DeviceKind::cuda;
const bool kLibraries = setenv("INTERNEVO_CUDA_LIBRARY", built::kModelLibrary, 1) == 0 &&
                        setenv("INTERNEVO_NCCL_LIBRARY", built::kNcclModel, 1) == 0;
#else
constexpr DeviceKind kDevice = DeviceKind::cpu;
#endif

Config quick() {
  Config config;
  config.minimumSamples = 3;
  config.maximumSeconds = 0.002;
  config.targetRelativeSpread = 0.5;
  config.deviceKind = kDevice;
  return config;
}

ModulePoint module(const char* shape) {
  Config config;
  Problem problem;
  const Json document{{"protocol", 1},
                      {"threadsPerRank", 1},
                      {"minimumSamples", 1},
                      {"maximumSeconds", 1},
                      {"targetRelativeSpread", 1},
                      {"collectives", Json::array()},
                      {"modules", {Json::parse(shape)}},
                      {"overlaps", Json::array()},
                      {"device", false}};
  EXPECT_TRUE(parseConfig(document.dump(), 1, &config, &problem)) << problem.message;
  return config.modules.at(0);
}

CollectivePoint collective(Collective op, const char* name, std::int64_t bytes) {
  std::vector<int> all(static_cast<std::size_t>(test::session().worldSize()));
  std::iota(all.begin(), all.end(), 0);
  return {op, name, "intra-node", bytes, {all}};
}

const char* const kModules[] = {
    R"({"module":"linear","pass":"forward","precision":"fp32","rows":20,"inputs":16,"outputs":24})",
    R"({"module":"linear","pass":"backward","precision":"bf16","rows":20,"inputs":16,"outputs":24})",
    R"({"module":"attention","pass":"forward","precision":"fp32","batch":1,"sequence":40,"heads":4,"kvHeads":2,"headSize":8})",
    R"({"module":"attention","pass":"backward","precision":"bf16","batch":1,"sequence":40,"heads":4,"kvHeads":2,"headSize":8})",
    R"({"module":"rmsnorm","pass":"forward","precision":"fp32","rows":20,"width":24})",
    R"({"module":"rmsnorm","pass":"backward","precision":"bf16","rows":20,"width":24})",
    R"({"module":"swiglu","pass":"forward","precision":"fp32","rows":20,"width":24})",
    R"({"module":"swiglu","pass":"backward","precision":"fp32","rows":20,"width":24})",
    R"({"module":"residual-add","pass":"backward","precision":"fp32","rows":20,"width":24})",
    R"({"module":"rope","pass":"forward","precision":"bf16","rows":20,"heads":2,"headSize":8})",
    R"({"module":"embedding","pass":"forward","precision":"fp32","rows":20,"width":24,"vocabulary":50})",
    R"({"module":"embedding","pass":"backward","precision":"fp32","rows":20,"width":24,"vocabulary":50})",
    R"({"module":"head-loss","pass":"forward-backward","precision":"bf16","rows":20,"width":24,"vocabulary":50})",
    R"({"module":"adamw","pass":"update","precision":"bf16","elements":1000})",
    R"({"module":"adamw","pass":"update","precision":"fp32","elements":1000})",
    R"({"module":"squared-norm","pass":"update","precision":"fp32","elements":1000})",
    R"({"module":"accumulate","pass":"update","precision":"bf16","elements":1000})"};

std::vector<Json> run(const Config& config, Outcome* outcome) {
  std::vector<Json> events;
  *outcome = runProbe(config, test::session(), [&](const Json& event) { events.push_back(event); });
  return events;
}

void expectSpread(const Json& event) {
  EXPECT_GT(event.at("medianSeconds").get<double>(), 0) << event;
  EXPECT_LE(event.at("p10Seconds").get<double>(), event.at("medianSeconds").get<double>());
  EXPECT_GE(event.at("p90Seconds").get<double>(), event.at("medianSeconds").get<double>());
  EXPECT_GE(event.at("samples").get<int>(), 3);
}

TEST(Probe, MeasuresEveryModule) {
  Config config = quick();
  for (const char* shape : kModules) config.modules.push_back(module(shape));
  Outcome outcome;
  const std::vector<Json> events = run(config, &outcome);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  if (test::session().rank() != 0) {
    EXPECT_TRUE(events.empty());
    return;
  }
  ASSERT_EQ(events.size(), std::size(kModules) + 2);
  for (std::size_t i = 0; i < std::size(kModules); ++i) {
    EXPECT_EQ(events[i].at("event"), "module");
    EXPECT_EQ(events[i].at("shape"), Json::parse(kModules[i]));
    expectSpread(events[i]);
  }
  EXPECT_EQ(events[0].at("flops"), 2.0 * 20 * 16 * 24);
  EXPECT_EQ(events[1].at("flops"), 4.0 * 20 * 16 * 24);
  EXPECT_EQ(events[2].at("flops"), 4.0 * 4 * 8 * (40 * 41 / 2));
  const Json& use = events[events.size() - 2];
  ASSERT_EQ(use.at("event"), "hosts");
  ASSERT_EQ(use.at("hosts").size(), 1u);
  EXPECT_EQ(use.at("hosts")[0].at("ranks"), test::session().worldSize());
  EXPECT_EQ(events.back().at("event"), "done");
}

TEST(Probe, TellsTheDeviceAndTheVersionsOfItsLibraries) {
  Config config = quick();
  config.device = true;
  Outcome outcome;
  const std::vector<Json> events = run(config, &outcome);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  if (test::session().rank() != 0) return;
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].at("event"), "device");
  for (const char* figure :
       {"peakFlopsPerSecondFp32", "peakFlopsPerSecondBf16", "memoryBandwidthBytesPerSecond",
        "toHostBytesPerSecond", "toDeviceBytesPerSecond"})
    EXPECT_GT(events[0].at(figure), 0) << figure;
  const auto versions = events[0].at("libraries").get<std::map<std::string, std::string>>();
  std::set<std::string> names;
  for (const auto& [name, version] : versions) {
    names.insert(name);
    EXPECT_FALSE(version.empty()) << name;
  }
  std::set<std::string> expected{"openmpi"};
  if (kDevice == DeviceKind::cuda)
    expected.insert({"nvidia-driver", "cuda-driver", "cuda-runtime", "cublaslt", "nccl"});
  EXPECT_EQ(names, expected);
#ifdef INTERNEVO_PROBE_ON_MODEL
  EXPECT_EQ(versions.at("cublaslt"), "model");
  EXPECT_EQ(std::count(versions.at("nccl").begin(), versions.at("nccl").end(), '.'), 2)
      << versions.at("nccl");
#endif
}

TEST(Probe, MeasuresEveryCollectiveAndOverlap) {
  Config config = quick();
  for (const std::int64_t bytes : {1, 100, 70000}) {
    config.collectives.push_back(collective(Collective::allReduce, "all-reduce", bytes));
    config.collectives.push_back(collective(Collective::allGather, "all-gather", bytes));
    config.collectives.push_back(collective(Collective::reduceScatter, "reduce-scatter", bytes));
    config.collectives.push_back(collective(Collective::allToAll, "all-to-all", bytes));
    config.collectives.push_back(collective(Collective::broadcast, "broadcast", bytes));
  }
  config.overlaps.push_back(
      {module(kModules[1]), collective(Collective::reduceScatter, "reduce-scatter", 5000)});
  Outcome outcome;
  const std::vector<Json> events = run(config, &outcome);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  if (test::session().rank() != 0) return;
  ASSERT_EQ(events.size(), 18u);
  for (std::size_t i = 0; i < 15; ++i) {
    EXPECT_EQ(events[i].at("op"), config.collectives[i].opName);
    EXPECT_EQ(events[i].at("bytes"), config.collectives[i].bytes);
    EXPECT_EQ(events[i].at("groupSize"), test::session().worldSize());
    expectSpread(events[i]);
  }
  const Json& overlap = events[15];
  EXPECT_EQ(overlap.at("event"), "overlap");
  const double alone = std::max(overlap.at("aloneComputeSeconds").get<double>(),
                                overlap.at("aloneCommunicationSeconds").get<double>());
  EXPECT_DOUBLE_EQ(overlap.at("slowdown").get<double>(), overlap.at("togetherSeconds").get<double>() / alone);
}

TEST(Probe, MeasuresMessagesBetweenPairs) {
  const int pairs = test::session().worldSize() / 2;
  if (pairs == 0) GTEST_SKIP() << "one rank has no other";
  Config config = quick();
  for (const std::int64_t bytes : {1, 70001}) {
    CollectivePoint point = collective(Collective::pointToPoint, "point-to-point", bytes);
    point.groups.clear();
    for (int i = 0; i < pairs; ++i) point.groups.push_back({i, i + pairs});
    config.collectives.push_back(point);
  }
  Outcome outcome;
  const std::vector<Json> events = run(config, &outcome);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  if (test::session().rank() != 0) return;
  ASSERT_EQ(events.size(), 4u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(events[i].at("op"), "point-to-point");
    EXPECT_EQ(events[i].at("bytes"), config.collectives[i].bytes);
    EXPECT_EQ(events[i].at("groupSize"), 2);
    expectSpread(events[i]);
  }
}

TEST(Probe, RanksOutsideTheGroupsWait) {
  Config config = quick();
  config.collectives.push_back(
      {Collective::allReduce, "all-reduce", "intra-node", 64, {{test::session().worldSize() - 1}}});
  Outcome outcome;
  run(config, &outcome);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
}

TEST(Probe, APointThatDoesNotFitIsRefusedOnEveryRankAndReportedOnce) {
  Config config = quick();
  config.modules.push_back(
      module(R"({"module":"squared-norm","pass":"update","precision":"fp32","elements":1099511627776})"));
  Outcome outcome;
  const std::vector<Json> events = run(config, &outcome);
  EXPECT_EQ(outcome.status.code(), StatusCode::outOfMemory);
  EXPECT_TRUE(outcome.everyRankKnows);
  EXPECT_EQ(outcome.status.message().empty(), test::session().rank() != 0);
  EXPECT_TRUE(events.empty());
}

TEST(Timer, FollowsTheSlowestRank) {
  const Config config = quick();
  Communicator world;
  std::vector<int> all(static_cast<std::size_t>(test::session().worldSize()));
  std::iota(all.begin(), all.end(), 0);
  ASSERT_TRUE(Communicator::create(all, 1, &world).ok());
  Timer timer(config, world);
  // Rank 0 alone works for 2 ms; every rank must report at least that.
  const auto work = [&] {
    const double begin = MPI_Wtime();
    while (test::session().rank() == 0 && MPI_Wtime() - begin < 0.002) {
    }
    return Status::success();
  };
  Samples samples;
  ASSERT_TRUE(timer.measure(work, &samples).ok());
  EXPECT_GE(samples.medianSeconds, 0.002);
  double largest = test::session().rank();
  ASSERT_TRUE(timer.largest(&largest).ok());
  EXPECT_EQ(largest, test::session().worldSize() - 1);
}

TEST(Modules, EveryShapeRuns) {
  const auto backend = createCpuBackend(1);
  for (const char* shape : kModules) {
    Memory memory(std::int64_t{64} << 20, backend->memory());
    Work work;
    ASSERT_TRUE(prepareModule(module(shape), *backend, memory, &work).ok()) << shape;
    EXPECT_TRUE(work.run().ok()) << shape;
  }
}

}  // namespace
}  // namespace internevo::probe
