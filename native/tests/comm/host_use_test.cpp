#include "internevo/host_use.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

#include "mpi_session.h"

namespace internevo {
namespace {

TEST(HostUse, ReadsProcessorTimes) {
  HostCounters counters;
  readProcessorTimes("cpu  100 20 30 4000 500 6 7 80 9 9\ncpu0 1 2 3", 100, &counters);
  EXPECT_DOUBLE_EQ(counters.busySeconds, 1.63);
  EXPECT_DOUBLE_EQ(counters.stolenSeconds, 0.8);
  HostCounters none;
  readProcessorTimes("", 100, &none);
  EXPECT_EQ(none.busySeconds, 0);
}

/// Processor time of the calling process.
double ownSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST(HostUse, TellsRanksFromOtherProcesses) {
  const HostUseMeter meter;
  const int ranks = test::session().worldSize();
  // Another process that takes a second of a processor, however long it waits for one.
  if (test::session().rank() == 0) {
    ASSERT_EQ(std::system("sh -c 'ulimit -t 1; while :; do :; done' >/dev/null 2>&1; true"), 0);
  }
  for (const double begin = ownSeconds(); ownSeconds() - begin < 0.2;) {
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const std::vector<HostUse> hosts = meter.end();
  if (test::session().rank() != 0) {
    EXPECT_TRUE(hosts.empty());
    return;
  }
  ASSERT_EQ(hosts.size(), 1u);
  const HostUse& host = hosts[0];
  EXPECT_EQ(host.ranks, ranks);
  EXPECT_GE(host.ranksSeconds, 0.2 * ranks);
  // What others took is what the host says it was busy, counted in ticks, less what the ranks say, counted exactly: with ranks that wait
  // for processors the two differ by a tenth of a second and more.
  EXPECT_GE(host.othersSeconds, 0.5);
  EXPECT_GT(host.seconds, 0.2);
  EXPECT_GT(host.cores, 0);
  EXPECT_GE(host.runnableBefore, 1);
}

}  // namespace
}  // namespace internevo
