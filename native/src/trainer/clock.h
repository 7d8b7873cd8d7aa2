// Where the time of a step goes.
#pragma once

#include <chrono>

namespace internevo::trainer {

inline double secondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Adds the time of its life to a counter, if there is one.
class Timed {
 public:
  explicit Timed(double* counter) : counter_(counter), start_(secondsNow()) {}
  ~Timed() {
    if (counter_ != nullptr) *counter_ += secondsNow() - start_;
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  double* counter_;
  double start_;
};

}  // namespace internevo::trainer
