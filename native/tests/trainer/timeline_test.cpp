// The timeline of several ranks in one file.
#include "trainer/timeline.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "mpi_session.h"
#include "support.h"
#include "trainer/failure.h"

namespace internevo::trainer::testing {
namespace {

TEST(Timeline, HasTheEventsOfEveryRankAndLaneInOneClock) {
  const int rank = test::session().rank(), size = test::session().worldSize();
  Activity activity(3);
  activity.record(true);
  {
    const Activity::Scope compute(activity, ActivityLane::compute, "forward", 1, 0);
    const Activity::Scope wire(activity, ActivityLane::communication, "all-gather parameters", 2, -1,
                               rank == 0);
  }
  for (int i = 0; i < 3; ++i) const Activity::Scope more(activity, ActivityLane::compute, "backward", 1, 0);
  // Every rank acts as if it were on a host of its own: the offsets of one and the same clock must come out small.
  const std::int64_t offset = clockOffsetNanoseconds(MPI_COMM_WORLD, rank == 0);
  EXPECT_LT(std::abs(offset), 50'000'000);
  EXPECT_EQ(clockOffsetNanoseconds(MPI_COMM_WORLD, true), 0);
  const TemporaryDirectory directory;
  const std::string path = directory.file("timeline.json");
  writeTimeline(MPI_COMM_WORLD, activity, 0, {"host" + std::to_string(rank), rank / 2}, path);
  if (rank != 0) return;

  std::ifstream file(path);
  const nlohmann::json trace = nlohmann::json::parse(file);
  std::map<int, int> spans, names;
  double earliest = 1e300;
  for (const auto& event : trace["traceEvents"]) {
    const int pid = event["pid"];
    if (event["ph"] == "M") {
      if (event["name"] == "process_name") {
        EXPECT_NE(event["args"]["name"].get<std::string>().find("(2 events had no room)"), std::string::npos);
      }
      ++names[pid];
      continue;
    }
    ++spans[pid];
    EXPECT_GE(event["dur"].get<double>(), 0);
    earliest = std::min(earliest, event["ts"].get<double>());
    if (event["name"] == "all-gather parameters") {
      EXPECT_EQ(event["tid"], 2);
      EXPECT_EQ(event["args"]["exposed"], pid == 0);
      EXPECT_EQ(event["args"]["unit"], 2);
      EXPECT_FALSE(event["args"].contains("microBatch"));
    }
  }
  EXPECT_EQ(earliest, 0);
  ASSERT_EQ(static_cast<int>(spans.size()), size);
  for (int pid = 0; pid < size; ++pid) {
    EXPECT_EQ(spans[pid], 3);
    EXPECT_EQ(names[pid], 1 + kActivityLanes);
  }
}

TEST(Timeline, ARefusedFileIsNamed) {
  if (test::session().worldSize() > 1) GTEST_SKIP() << "only the rank that writes can see it";
  const Activity activity(1);
  try {
    writeTimeline(MPI_COMM_WORLD, activity, 0, {"h", 0}, "/nowhere/at/all.json");
    FAIL() << "it was written";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.problem().field, "timeline.path");
    EXPECT_NE(failure.problem().message.find("/nowhere/at/all.json"), std::string::npos);
  }
}

TEST(Timeline, WhatStaysFreeOfADiskIsNotTaken) {
  TemporaryDirectory directory;
  const std::string path = directory.file("timeline.json");
  const int rank = test::session().rank();
  const Activity activity(1);
  const auto write = [&] {
    writeTimeline(MPI_COMM_WORLD, activity, 0, {"h", 0}, path, DiskMargin{1, std::int64_t{1} << 62});
  };
  if (rank > 0) return write();  // what it gives is received all the same
  try {
    write();
    FAIL() << "it was written";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.problem().code, StatusCode::checkpointError);
    EXPECT_NE(failure.problem().message.find(" stay free"), std::string::npos) << failure.what();
  }
  EXPECT_FALSE(std::ifstream(path).good());
}

}  // namespace
}  // namespace internevo::trainer::testing
