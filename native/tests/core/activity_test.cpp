// Present operations and recorded events.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "internevo/activity.h"

namespace internevo {
namespace {

TEST(Activity, KnowsThePresentOperationOfEachLaneAndTheOneAround) {
  Activity activity(0);
  EXPECT_EQ(activity.present(ActivityLane::compute).name, nullptr);
  {
    const Activity::Scope outer(activity, ActivityLane::compute, "forward", 3, 1);
    {
      const Activity::Scope inner(activity, ActivityLane::compute, "attention", 3, 1);
      const Activity::Scope other(activity, ActivityLane::communication, "all-gather", 4);
      EXPECT_STREQ(activity.present(ActivityLane::compute).name, "attention");
      EXPECT_STREQ(activity.present(ActivityLane::communication).name, "all-gather");
      EXPECT_EQ(activity.present(ActivityLane::communication).unit, 4);
    }
    EXPECT_STREQ(activity.present(ActivityLane::compute).name, "forward");
    EXPECT_EQ(activity.present(ActivityLane::compute).unit, 3);
    EXPECT_EQ(activity.present(ActivityLane::communication).name, nullptr);
  }
  EXPECT_EQ(activity.finished(), 3);
  EXPECT_EQ(activity.eventCount(), 0);
}

TEST(Activity, RecordsFromSeveralThreadsAndSaysWhatHadNoRoom) {
  Activity activity(300);
  const auto work = [&](ActivityLane lane) {
    for (int i = 0; i < 100; ++i) const Activity::Scope scope(activity, lane, "op", i);
  };
  work(ActivityLane::compute);
  EXPECT_EQ(activity.eventCount(), 0) << "not asked to record";
  activity.record(true);
  std::thread other(work, ActivityLane::communication);
  work(ActivityLane::compute);
  other.join();
  work(ActivityLane::compute);
  work(ActivityLane::compute);
  ASSERT_EQ(activity.eventCount(), 300);
  EXPECT_EQ(activity.dropped(), 100);
  int communications = 0;
  for (std::int64_t i = 0; i < activity.eventCount(); ++i) {
    const ActivityEvent& event = activity.events()[i];
    EXPECT_LE(event.startNanoseconds, event.endNanoseconds);
    EXPECT_STREQ(event.name, "op");
    communications += event.lane == ActivityLane::communication ? 1 : 0;
  }
  EXPECT_EQ(communications, 100);
}

}  // namespace
}  // namespace internevo
