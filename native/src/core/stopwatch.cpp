#include "internevo/stopwatch.h"

#include <chrono>

namespace internevo {

namespace {

class HostStopwatch final : public Stopwatch {
 public:
  Status start() override { return begin_ = Clock::now(), Status::success(); }
  Status stop(double* seconds) override {
    *seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    return Status::success();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_;
};

}  // namespace

std::unique_ptr<Stopwatch> createHostStopwatch() { return std::make_unique<HostStopwatch>(); }

}  // namespace internevo
