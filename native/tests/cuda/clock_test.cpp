// Operations timed by a device's clock, on the model of a device: its events have the times at which its thread came to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "../installed.h"
#include "internevo/activity.h"
#include "internevo/device_library.h"

namespace internevo {
namespace {

constexpr std::int64_t kElements = 1 << 14;

class DeviceTimes : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("INTERNEVO_CUDA_LIBRARY", built::kModelLibrary, 1);
    setenv("INTERNEVO_MODEL_STREAMS", "first",
           1);  // the computing stream comes first: what it waits for, it waits for in full
    ASSERT_TRUE(openCudaBackend({}, &backend_).ok());
    void* data = nullptr;
    ASSERT_TRUE(backend_->memory().allocate(8 * kElements, &data).ok());
    own_ = {data, DataType::float32}, travels_ = own_.offset(kElements);
    lane_ = backend_->createLane();
  }
  void TearDown() override {
    lane_.reset();
    if (own_.data != nullptr) backend_->memory().release(own_.data, 8 * kElements);
    unsetenv("INTERNEVO_CUDA_LIBRARY"), unsetenv("INTERNEVO_MODEL_STREAMS");
  }
  Status work(View x, int times) {
    for (int i = 0; i < times; ++i) INTERNEVO_RETURN_IF_ERROR(backend_->accumulate(kElements, x, x));
    return Status::success();
  }
  std::int64_t marked(Moments& moments) {
    std::int64_t moment = -1;
    EXPECT_TRUE(moments.mark(&moment).ok());
    return moment;
  }
  static std::int64_t at(Moments& moments, std::int64_t moment) {
    std::int64_t nanoseconds = 0;
    EXPECT_TRUE(moments.read(moment, &nanoseconds).ok());
    return nanoseconds;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Lane> lane_;
  View own_, travels_;
};

TEST_F(DeviceTimes, MomentsAreOfTheSteadyClockAndInTheOrderOfTheirStream) {
  const auto moments = backend_->createMoments(3);
  std::int64_t early = 0;
  EXPECT_EQ(moments->mark(&early).code(), StatusCode::internal) << "before the clock was set";
  ASSERT_TRUE(moments->reset().ok());  // makes its event
  const std::int64_t before = steadyNanoseconds();
  ASSERT_TRUE(moments->reset().ok());
  const std::int64_t setting = steadyNanoseconds() - before;  // within which the clock was set
  const std::int64_t first = marked(*moments);
  ASSERT_TRUE(work(own_, 20).ok());
  const std::int64_t second = marked(*moments), third = marked(*moments);
  EXPECT_LE(before, at(*moments, first));
  EXPECT_LT(at(*moments, first), at(*moments, second));
  EXPECT_LE(at(*moments, second), at(*moments, third));
  EXPECT_LE(at(*moments, third), steadyNanoseconds() + setting) << "reading waits for the device";

  EXPECT_EQ(marked(*moments), -1) << "there is room for three";
  EXPECT_EQ(moments->missed(), 1);
  std::int64_t none = 0;
  EXPECT_EQ(moments->read(3, &none).code(), StatusCode::internal);
  ASSERT_TRUE(moments->reset().ok());
  EXPECT_EQ(moments->missed(), 0);
  EXPECT_EQ(moments->read(first, &none).code(), StatusCode::internal) << "forgotten";
  EXPECT_EQ(marked(*moments), first);
}

TEST_F(DeviceTimes, ExposedIsWhatTheComputingStreamWaitsForTheLane) {
  const auto moments = backend_->createMoments(100);
  Activity activity(0);
  ASSERT_TRUE(activity.timeBy(moments.get()).ok());
  double exposed = 0, waited = 0, beside = 0;
  /// What is on the lane, then what is computed beside it, then the wait. Seconds of the wait.
  const auto step = [&](int travelling, int computing) {
    exposed = waited = beside = 0;
    const Lane::Ticket ticket = lane_->submit([&] {
      const Activity::Scope scope(activity, ActivityLane::communication, "all-gather");
      return work(travels_, travelling);
    });
    EXPECT_TRUE(work(own_, computing).ok());
    {
      const Activity::Scope scope(activity, ActivityLane::exposed, "wait", -1, -1, true, {&exposed, &waited});
      EXPECT_TRUE(lane_->wait(ticket).ok());
    }
    EXPECT_EQ(exposed, 0) << "not known before the device has come there";
    EXPECT_TRUE(backend_->settle().ok());
    EXPECT_TRUE(activity.settle(&beside).ok());
    EXPECT_EQ(exposed, waited);
    return exposed;
  };
  step(1, 1);  // streams and events are made
  double forced = 0, unforced = HUGE_VAL;
  for (int i = 0; i < 5; ++i) {  // the best of them: the device's thread is put aside now and then
    const double wait = step(40, 0);
    forced = std::max(forced, wait / beside);
    EXPECT_GT(beside, 0);
    unforced = std::min(unforced, step(0, 40));
  }
  EXPECT_GT(forced, 0.5) << "nothing was computed meanwhile";
  step(40, 0);
  EXPECT_LT(unforced, beside / 4) << "the lane had nothing to do";
  ASSERT_TRUE(activity.timeBy(nullptr).ok());
}

TEST_F(DeviceTimes, RecordedOperationsHaveTheDevicesTimes) {
  const auto moments = backend_->createMoments(100);
  Activity activity(10);
  ASSERT_TRUE(activity.timeBy(moments.get()).ok());
  const auto compute = [&](const char* name) {
    const Activity::Scope scope(activity, ActivityLane::compute, name);
    EXPECT_TRUE(work(own_, 20).ok());
  };
  compute("not recorded");
  activity.record(true);
  compute("one"), compute("two");
  activity.record(false);
  double beside = 0;
  ASSERT_TRUE(activity.settle(&beside).ok());
  ASSERT_EQ(activity.eventCount(), 2);
  const ActivityEvent &one = activity.events()[0], &two = activity.events()[1];
  EXPECT_STREQ(one.name, "one");
  EXPECT_LE(one.endNanoseconds, two.startNanoseconds);
  const std::int64_t each = one.endNanoseconds - one.startNanoseconds;
  EXPECT_GT(each, 0);
  EXPECT_GT(two.endNanoseconds - two.startNanoseconds, 0);
  EXPECT_EQ(beside, 0);
  ASSERT_TRUE(activity.timeBy(nullptr).ok());
}

}  // namespace
}  // namespace internevo
