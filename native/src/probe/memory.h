// Buffers of one measured point, within what the machine can give.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "internevo/arena.h"

namespace internevo::probe {

/// Touched memory, filled with small values; freed when the point is done. Once a request does not fit, every view is
/// empty and status() says so.
class Memory {
 public:
  explicit Memory(std::int64_t budgetBytes) : budgetBytes_(budgetBytes) {}

  View take(std::int64_t elements, DataType type) {
    const std::int64_t bytes = alignUp(elements * bytesPerElement(type), kAlignmentBytes);
    usedBytes_ += bytes;
    if (!status_.ok()) return {};
    if (usedBytes_ > budgetBytes_) {
      status_ = {StatusCode::outOfMemory, "a point needs more than the " + std::to_string(budgetBytes_) +
                                              " bytes that a rank can have; measure smaller sizes"};
      return {};
    }
    auto& arena = arenas_.emplace_back(std::make_unique<Arena>());
    void* data = nullptr;
    status_ = arena->create(bytes);
    if (status_.ok()) status_ = arena->at(0, bytes, &data);
    if (!status_.ok()) return {};
    fill({data, type}, elements);
    return {data, type};
  }
  Workspace workspace(std::int64_t bytes) {
    const std::int64_t size = bytes < kAlignmentBytes ? kAlignmentBytes : bytes;
    return {take(size, DataType::byte).data, size};
  }
  const Status& status() const { return status_; }

 private:
  /// Values between −1 and 1 without a pattern that a kernel could profit from; token ids stay 0.
  static void fill(View view, std::int64_t elements) {
    std::uint32_t state = 12345;
    for (std::int64_t i = 0; i < elements; ++i) {
      state = state * 1664525u + 1013904223u;
      const float value = static_cast<float>(state >> 8) / 8388608.f - 1.f;
      if (view.type == DataType::float32) view.as<float>()[i] = value;
      if (view.type == DataType::bfloat16) view.as<std::uint16_t>()[i] = bfloat16FromFloat(value);
    }
  }

  std::int64_t budgetBytes_, usedBytes_ = 0;
  Status status_;
  std::vector<std::unique_ptr<Arena>> arenas_;
};

/// A share of the memory that the host has left, for each of the ranks on it.
std::int64_t memoryBudgetBytes(int ranksOnHost);
/// Resident bytes of this process now.
std::int64_t residentBytes();

}  // namespace internevo::probe
