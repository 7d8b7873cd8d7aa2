// What a device's streams are given, and whether events order it as the CPU backend's calls are ordered: first the check itself, then
// plans of several ranks, of which waits are left out in turn: all of them with INTERNEVO_CUDA_TESTS=all, else until one is missed for
// every pair of streams.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <tuple>

#include "../installed.h"
#include "cuda/plan_sample.h"
#include "cuda/traced_library.h"
#include "emulator/launch_order.h"
#include "internevo/device_library.h"
#include "trainer/lattice.h"
#include "trainer/support.h"
#include "trainer/trainer.h"

namespace internevo::trainer::testing {
namespace {

using namespace cuda::model;
using Kind = LaunchStep::Kind;

// ---- the check -----------------------------------------------------------------------------------------------------

LaunchStep work(int stream, std::vector<ByteRange> reads, std::vector<ByteRange> writes) {
  return {Kind::work, stream, -1, "work", std::move(reads), std::move(writes)};
}
LaunchStep record(int stream) { return {Kind::record, stream, -1, {}, {}, {}}; }
LaunchStep wait(int stream, std::int64_t recorded) { return {Kind::wait, stream, recorded, {}, {}, {}}; }
LaunchStep hostWait(int stream) { return {Kind::hostWait, stream, -1, {}, {}, {}}; }

std::size_t missing(const std::vector<LaunchStep>& steps, std::int64_t without = -1) {
  return uncovered(steps, dependenciesOf(steps), without).size();
}

TEST(LaunchOrder, BytesThatOneStreamWritesAndAnotherUsesNeedAnEvent) {
  EXPECT_EQ(missing({work(0, {}, {{0, 8}}), work(1, {{7, 9}}, {})}), 1u);
  EXPECT_EQ(missing({work(0, {{0, 8}}, {}), work(1, {}, {{4, 6}})}), 1u);
  EXPECT_EQ(missing({work(0, {}, {{0, 8}}), work(1, {}, {{4, 6}})}), 1u);
  EXPECT_EQ(missing({work(0, {{0, 8}}, {}), work(1, {{0, 8}}, {})}), 0u) << "both only read";
  EXPECT_EQ(missing({work(0, {}, {{0, 8}}), work(1, {}, {{8, 16}})}), 0u) << "different bytes";
  EXPECT_EQ(missing({work(0, {}, {{0, 8}}), work(0, {{0, 8}}, {})}), 0u) << "one stream";
  const std::vector<LaunchStep> ordered{work(0, {}, {{0, 8}}), record(0), wait(1, 1), work(1, {{0, 8}}, {})};
  EXPECT_EQ(missing(ordered), 0u);
  EXPECT_EQ(missing(ordered, 2), 1u) << "without its wait";
}

TEST(LaunchOrder, AnEventSaysOnlyWhatWasGivenBeforeItWasRecorded) {
  EXPECT_EQ(missing({record(0), work(0, {}, {{0, 8}}), wait(1, 0), work(1, {{0, 8}}, {})}), 1u)
      << "recorded too early";
  EXPECT_EQ(missing({wait(1, -1), work(0, {}, {{0, 8}}), record(0), work(1, {{0, 8}}, {})}), 1u)
      << "never recorded when it was waited for";
  EXPECT_EQ(missing({work(0, {}, {{0, 8}}), record(0), work(1, {{0, 8}}, {}), wait(1, 1)}), 1u)
      << "waited for too late";
}

TEST(LaunchOrder, OrderGoesOverOtherStreamsAndTheHost) {
  const std::vector<LaunchStep> chain{work(0, {}, {{0, 8}}), record(0), wait(1, 1), record(1), wait(2, 3),
                                      work(2, {{0, 8}}, {})};
  EXPECT_EQ(missing(chain), 0u);
  EXPECT_EQ(missing(chain, 2), 1u);
  EXPECT_EQ(missing(chain, 4), 1u);
  EXPECT_EQ(missing({work(0, {}, {{0, 8}}), hostWait(0), work(1, {{0, 8}}, {})}), 0u);
  EXPECT_EQ(missing({work(0, {}, {{0, 8}}), hostWait(2), work(1, {{0, 8}}, {})}), 1u)
      << "the host waited for another stream";
}

TEST(LaunchOrder, EveryReaderSinceTheLastWriteIsWaitedFor) {
  const std::vector<LaunchStep> steps{work(0, {{0, 4}}, {}), work(1, {{2, 8}}, {}), record(1), wait(2, 2),
                                      work(2, {}, {{0, 8}})};
  const std::vector<Dependency> left = uncovered(steps, dependenciesOf(steps));
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].before, 0);
  EXPECT_EQ(describe(steps, left[0]),
            "work on stream 0 (step 0) and work on stream 2 (step 4) touch the byte at 0, and no event is "
            "between them");
}

// ---- what is recorded ----------------------------------------------------------------------------------------------

std::vector<LaunchStep> lastTrace() {
  void* const library = dlopen(built::kTracedLibrary, RTLD_NOW | RTLD_NOLOAD);
  const auto entry =
      library == nullptr ? nullptr : reinterpret_cast<ModelTrace>(dlsym(library, kModelTraceName));
  std::vector<LaunchStep> steps;
  EXPECT_NE(entry, nullptr) << "the traced library was not opened";
  if (entry != nullptr) entry(&steps);
  return steps;
}

class Launches : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("INTERNEVO_CUDA_LIBRARY", built::kTracedLibrary, 1);
    setenv("INTERNEVO_NCCL_LIBRARY", built::kNcclModel, 1);
  }
};

TEST_F(Launches, KernelsAreSeenWithTheBytesThatTheyTouch) {
  std::unique_ptr<Backend> backend;
  ASSERT_TRUE(openCudaBackend({0, true}, &backend).ok());
  void* data = nullptr;
  ASSERT_TRUE(backend->memory().allocate(4096, &data).ok());
  const View a{data, DataType::float32}, b = a.offset(256), c = a.offset(512);
  const std::vector<float> one(16, 1.f);
  ASSERT_TRUE(backend->memory().upload(a.data, one.data(), 64).ok());
  const auto lane = backend->createLane();
  for (const bool waits : {true, false}) {
    const auto ticket = lane->submit([&] { return backend->add(16, a, a, b); });
    if (waits) {
      ASSERT_TRUE(lane->wait(ticket).ok());
    }
    ASSERT_TRUE(backend->accumulate(16, b, c).ok());
  }
  ASSERT_TRUE(lane->waitAll().ok());
  ASSERT_TRUE(backend->settle().ok());
  backend->memory().release(data, 4096);
  const std::vector<LaunchStep> steps = lastTrace();
  std::vector<const LaunchStep*> kernels;
  for (const LaunchStep& step : steps) {
    if (step.name == "add" || step.name == "accumulate") kernels.push_back(&step);
  }
  ASSERT_EQ(kernels.size(), 4u);
  const auto at = [](const View& view, std::int64_t bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(view.data);
    return std::vector<ByteRange>{{begin, begin + static_cast<std::uintptr_t>(bytes)}};
  };
  EXPECT_EQ(kernels[0]->reads, at(a, 64));
  EXPECT_EQ(kernels[0]->writes, at(b, 64));
  EXPECT_EQ(kernels[1]->writes, at(c, 64));
  EXPECT_NE(kernels[0]->stream, kernels[1]->stream);
  // The first was waited for, the second was not: exactly that is missing.
  const std::vector<Dependency> left = uncovered(steps, dependenciesOf(steps));
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(&steps[static_cast<std::size_t>(left[0].before)], kernels[2]);
  EXPECT_EQ(&steps[static_cast<std::size_t>(left[0].after)], kernels[3]);
}

// ---- plans ---------------------------------------------------------------------------------------------------------

int worldRank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

/// What each lane was told of, in its order: name, unit, micro-batch.
using Told = std::map<int, std::vector<std::tuple<std::string, int, int>>>;

Told train(Config config, const PlanConfig& plan, DeviceKind device) {
  config.plan = plan, config.mesh = meshOf(plan), config.device = device;
  validatePlan(config);
  std::vector<int> everyone(4);
  std::iota(everyone.begin(), everyone.end(), 0);
  Activity activity(100000);
  {
    Trainer trainer(config, worldRank(), everyone, &activity);
    trainer.initializeWeights();
    activity.record(true);
    for (int step = 1; step <= 2; ++step) trainer.step(step);
    trainer.parameters().settle();
    activity.record(false);
  }  // now all that was given to the device is done
  EXPECT_EQ(activity.dropped(), 0);
  Told told;
  for (std::int64_t i = 0; i < activity.eventCount(); ++i) {
    const ActivityEvent& e = activity.events()[i];
    told[static_cast<int>(e.lane)].emplace_back(e.name, e.unit, e.microBatch);
  }
  return told;
}

/// By the pair of streams: how many waits there are, how many were left out, and how many of these nothing else replaces.
struct Waits {
  std::size_t all = 0, leftOut = 0, needed = 0;
};

TEST_F(Launches, OfPlansAreOrderedByEventsAndNoEventCanBeSpared) {
  TemporaryDirectory directory;  // of each rank
  Config base = smallConfig(directory.file("d.tokens"));
  writeTokenFile(base.data.path, sampleTokens(600, 29), 29);
  base.model = {16, 2, 4, 2, 24, 29, false, 10000, 1e-5, 0.07};
  base.sequenceLengthTokens = 8;
  base.watchdog.reset(), base.checkpoint.reset();
  std::size_t plans = 0, dependencies = 0, waits = 0, leftOut = 0, needed = 0, steps = 0;
  for (const PlanConfig& plan : planSample(withOverlaps(latticeOf(base, 4, 4)), allAsked())) {
    const Told onDevice = train(base, plan, DeviceKind::cuda);
    const std::vector<LaunchStep> given = lastTrace();
    const std::vector<Dependency> wanted = dependenciesOf(given);
    const std::vector<Dependency> left = uncovered(given, wanted);
    EXPECT_TRUE(left.empty()) << nameOf(plan) << ": " << left.size()
                              << ", the first: " << describe(given, left.front());
    EXPECT_EQ(onDevice, train(base, plan, DeviceKind::cpu))
        << nameOf(plan) << ": the lanes of the CPU's run were told of other work";
    std::map<std::pair<int, int>, Waits> between;
    std::map<std::pair<int, int>, std::size_t> crossing;
    for (const Dependency& d : wanted) {
      ++crossing[{given[static_cast<std::size_t>(d.before)].stream,
                  given[static_cast<std::size_t>(d.after)].stream}];
    }
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (given[i].kind != Kind::wait || given[i].recorded < 0) continue;
      Waits& own = between[{given[static_cast<std::size_t>(given[i].recorded)].stream, given[i].stream}];
      ++own.all;
      if (own.needed > 0 && !allAsked()) continue;  // one of each pair is enough
      ++own.leftOut;
      if (!uncovered(given, wanted, static_cast<std::int64_t>(i)).empty()) ++own.needed;
    }
    for (const auto& [streams, count] : crossing) {
      EXPECT_GT(between[streams].needed, 0u)
          << nameOf(plan) << ": " << count << " dependencies of stream " << streams.second << " on stream "
          << streams.first << ", and no wait between them is missed";
    }
    for (const auto& [streams, own] : between) waits += own.all, leftOut += own.leftOut, needed += own.needed;
    ++plans, dependencies += wanted.size(), steps += given.size();
  }
  EXPECT_GT(dependencies, 100u);
  EXPECT_GT(needed, allAsked() ? 100u : 10u);
  std::printf(
      "rank %d: %zu plans, %zu steps, %zu dependencies between streams; %zu waits, %zu of them left out in "
      "turn: %zu are missed\n",
      worldRank(), plans, steps, dependencies, waits, leftOut, needed);
}

}  // namespace
}  // namespace internevo::trainer::testing
