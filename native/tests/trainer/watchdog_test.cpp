// Ranks as processes that die, freeze or get stuck, and the watchdog that must name them.
#include "trainer/watchdog.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <sstream>

#include "trainer/watchdog_wire.h"

namespace internevo::trainer {
namespace {

constexpr WatchdogLimits kQuick{0.05, 1.0, 1.5, 3, 1.5};

std::vector<RankIdentity> identities(int ranks) {
  std::vector<RankIdentity> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back({"host" + std::to_string(rank), rank / 2});
  return all;
}

struct Operation {
  ActivityLane lane;
  const char* name;
  int unit = -1, microBatch = -1;
};
const Operation kReduce{ActivityLane::communication, "reduce-scatter gradients", 3, 1};

/// A rank in a process of its own, in one operation for ever (or leaving at once); the test may kill or stop it.
class RankProcess {
 public:
  RankProcess(int rank, const WatchdogEndpoint& endpoint, const Operation& operation, bool leaves = false) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    pid_ = fork();
    if (pid_ == 0) {
      {
        Activity activity(0);
        activity.beginStep(7);
        const Activity::Scope scope(activity, operation.lane, operation.name, operation.unit,
                                    operation.microBatch);
        const WatchdogMember member(rank, endpoint, {"host0", 0}, kQuick, activity,
                                    [](const LostRank&) { _exit(9); });
        if (write(ends[1], "r", 1) != 1) _exit(8);
        while (!leaves) pause();
      }
      _exit(0);
    }
    char ready = 0;
    if (read(ends[0], &ready, 1) != 1) throw std::runtime_error("the rank did not start");
    close(ends[0]), close(ends[1]);
  }
  ~RankProcess() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  void send(int signal) const { kill(pid_, signal); }
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
};

struct Hub {
  explicit Hub(int ranks)
      : hub(identities(ranks), kQuick, activity, true,
            [this](const LostRank& lost) { found.set_value(lost); }) {
    activity.beginStep(7);
  }
  /// Operations end at a steady pace until the verdict.
  LostRank verdictWhileWorking() {
    auto future = found.get_future();
    const double until = static_cast<double>(steadyNanoseconds()) * 1e-9 + 20;
    while (future.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
      const Activity::Scope work(activity, ActivityLane::compute, "forward");
      if (static_cast<double>(steadyNanoseconds()) * 1e-9 > until)
        throw std::runtime_error("no verdict in 20 s");
    }
    return future.get();
  }
  Activity activity{0};
  std::promise<LostRank> found;
  WatchdogHub hub;
};

const Operation kForward{ActivityLane::compute, "forward"};

TEST(Watchdog, NamesARankThatDiedWithItsLastOperation) {
  Hub hub(3);
  RankProcess one(1, hub.hub.endpoint(), kForward), two(2, hub.hub.endpoint(), kReduce);
  two.send(SIGKILL);
  const LostRank lost = hub.verdictWhileWorking();
  EXPECT_EQ(lost.rank, 2);
  EXPECT_EQ(lost.kind, LostRank::Kind::died);
  EXPECT_NE(lost.description.find("rank 2 on host2 (stage 1) died"), std::string::npos) << lost.description;
  EXPECT_NE(lost.description.find("step 7, in reduce-scatter gradients of unit 3, micro-batch 1"),
            std::string::npos)
      << lost.description;
}

TEST(Watchdog, NamesARankThatIsStopped) {
  Hub hub(3);
  RankProcess one(1, hub.hub.endpoint(), kReduce), two(2, hub.hub.endpoint(), kForward);
  one.send(SIGSTOP);
  const LostRank lost = hub.verdictWhileWorking();
  EXPECT_EQ(lost.rank, 1);
  EXPECT_EQ(lost.kind, LostRank::Kind::frozen);
}

TEST(Watchdog, NamesTheRankThatComputesForEverWhileTheOthersWaitForIt) {
  Hub hub(3);
  RankProcess one(1, hub.hub.endpoint(), kReduce);
  RankProcess two(2, hub.hub.endpoint(), {ActivityLane::compute, "attention forward", 5});
  auto future = hub.found.get_future();
  const Activity::Scope wait(hub.activity, ActivityLane::communication, "all-gather parameters");
  ASSERT_EQ(future.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  const LostRank lost = future.get();
  EXPECT_EQ(lost.rank, 2);
  EXPECT_EQ(lost.kind, LostRank::Kind::stuck);
  EXPECT_NE(lost.description.find("attention forward of unit 5"), std::string::npos) << lost.description;
}

TEST(Watchdog, HasPatienceWithDisks) {
  Hub hub(2);
  RankProcess one(1, hub.hub.endpoint(), {ActivityLane::compute, "checkpoint writing"});
  EXPECT_EQ(hub.found.get_future().wait_for(std::chrono::milliseconds(3500)), std::future_status::timeout);
}

TEST(Watchdog, TheOthersNoticeTheDeathOfRankZeroAndAnEndWithGoodbyeIsNone) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t first = fork();
  if (first == 0) {
    Activity activity(0);
    const WatchdogHub hub(identities(2), kQuick, activity, true, [](const LostRank&) {});
    const std::string& endpoint = hub.endpoint();
    if (write(ends[1], endpoint.data(), endpoint.size()) < 0) _exit(8);
    for (;;) pause();
  }
  char text[200];
  const ssize_t count = read(ends[0], text, sizeof text);
  ASSERT_GT(count, 0);
  RankProcess one(1, std::string(text, static_cast<std::size_t>(count)), kForward);
  kill(first, SIGKILL);
  waitpid(first, nullptr, 0);
  EXPECT_EQ(one.wait(), 9) << "rank 1 reported rank 0";

  Hub hub(2);
  RankProcess leaving(1, hub.hub.endpoint(), kForward, true);
  EXPECT_EQ(leaving.wait(), 0);
  EXPECT_EQ(hub.found.get_future().wait_for(std::chrono::milliseconds(1500)), std::future_status::timeout);
}

TEST(Watchdog, AHubThatEndsBeforeItWelcomedAMemberSaysGoodbyeToItToo) {
  for (int round = 0; round < 40; ++round) {
    Activity activity(0);
    std::promise<LostRank> lost;
    auto future = lost.get_future();
    auto hub = std::make_unique<Hub>(2);
    const WatchdogMember member(1, hub->hub.endpoint(), {"host0", 0}, kQuick, activity,
                                [&](const LostRank& rank) { lost.set_value(rank); });
    hub.reset();
    ASSERT_EQ(future.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout)
        << "round " << round;
  }
}

TEST(Watchdog, TurnsStrangersAway) {
  Hub hub(2);
  std::istringstream words(hub.hub.endpoint());
  std::string token;
  std::uint16_t port = 0;
  words >> token >> port;
  const int stranger = watchdog::connectTo("127.0.0.1", port, 2);
  ASSERT_GE(stranger, 0);
  watchdog::Hello hello{};
  hello.rank = 1;
  ASSERT_TRUE(watchdog::sendAll(stranger, &hello, sizeof hello));
  pollfd closed{stranger, POLLIN, 0};
  EXPECT_EQ(poll(&closed, 1, 5000), 1);
  char byte = 0;
  EXPECT_EQ(recv(stranger, &byte, 1, 0), 0) << "a wrong token ends the connection";
  close(stranger);
  EXPECT_EQ(hub.found.get_future().wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
}

}  // namespace
}  // namespace internevo::trainer
