// Operands on a device, and the time of a call on them.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "cuda/check/harness.h"

namespace internevo::check {

/// Device memory for the operands of the benchmarks, which differ by shape only: bfloat16 of small numbers.
class Operands {
 public:
  explicit Operands(MemorySpace& memory) : memory_(memory) {}
  ~Operands() {
    for (const auto& [data, bytes] : taken_) memory_.release(data, bytes);
  }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  View take(std::int64_t elements, DataType type = DataType::bfloat16) {
    const std::int64_t bytes = elements * bytesPerElement(type);
    void* data = nullptr;
    if (status.ok()) status = memory_.allocate(bytes, &data);
    if (data == nullptr) return {nullptr, type};
    taken_.push_back({data, bytes});
    if (type == DataType::bfloat16) fill(data, elements);
    return {data, type};
  }
  /// int32 in [0, below), as tokens are.
  View tokens(std::int64_t count, std::int64_t below) {
    const View taken = take(count, DataType::int32);
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    std::uint32_t state = 1;
    for (std::int32_t& value : values) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(below));
    }
    if (status.ok()) status = memory_.upload(taken.data, values.data(), 4 * count);
    return taken;
  }
  Workspace scratch(std::int64_t bytes) { return {take(bytes, DataType::byte).data, bytes}; }

  Status status;

 private:
  void fill(void* data, std::int64_t elements) {
    std::vector<std::uint16_t> values(static_cast<std::size_t>(std::min<std::int64_t>(elements, 1 << 20)));
    std::uint32_t state = 1;
    for (std::uint16_t& value : values) {
      state = state * 1664525u + 1013904223u;
      value = bfloat16FromFloat(static_cast<float>(static_cast<std::int32_t>(state)) / 4294967296.f);
    }
    for (std::int64_t at = 0; at < elements && status.ok(); at += static_cast<std::int64_t>(values.size())) {
      const std::int64_t count =
          std::min<std::int64_t>(elements - at, static_cast<std::int64_t>(values.size()));
      status = memory_.upload(static_cast<std::uint16_t*>(data) + at, values.data(), 2 * count);
    }
  }

  MemorySpace& memory_;
  std::vector<std::pair<void*, std::int64_t>> taken_;
};

class Timer {
 public:
  /// `roundSeconds`: how long a round of calls is to last.
  Timer(Backend& device, bool small, std::vector<Measured>* results, int rounds = 5,
        double roundSeconds = 0.1)
      : device_(device),
        small_(small),
        results_(results),
        rounds_(small ? 1 : rounds),
        roundSeconds_(roundSeconds) {}

  /// The best of the rounds; `work` in units of 1e12 a call.
  void time(const std::string& name, double work, const char* unit, const Operands& operands,
            const std::function<Status()>& call) {
    Measured m;
    m.name = name, m.unit = unit;
    Status status = operands.status;
    const auto round = [&](int calls) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < calls && status.ok(); ++i) status = call();
      if (status.ok()) status = device_.settle();
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls;
    };
    round(1);  // chooses algorithms, loads kernels
    const int calls =
        small_ ? 1 : std::clamp(static_cast<int>(roundSeconds_ / std::max(round(2), 1e-6)), 2, 2000);
    m.seconds = round(calls);
    for (int i = 1; i < rounds_; ++i) m.seconds = std::min(m.seconds, round(calls));
    if (!status.ok()) m.message = status.message();
    m.figure = work / m.seconds;
    results_->push_back(m);
  }

 private:
  Backend& device_;
  const bool small_;
  std::vector<Measured>* results_;
  const int rounds_;
  const double roundSeconds_;
};

}  // namespace internevo::check
