// Buffers of one measured point, within what the machine can give.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "internevo/arena.h"

namespace internevo::probe {

/// Touched memory, filled with small values; freed when the point is done. Once a request does not fit, every view is
/// empty and status() says so.
class Memory {
 public:
  Memory(std::int64_t budgetBytes, MemorySpace& space) : budgetBytes_(budgetBytes), space_(space) {}

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
    status_ = arena->create(bytes, space_);
    if (status_.ok()) status_ = arena->at(0, bytes, &data);
    if (status_.ok()) status_ = fill({data, type}, elements);
    if (!status_.ok()) return {};
    return {data, type};
  }
  void zero(View view, std::int64_t elements) {
    if (status_.ok()) status_ = space_.zero(view.data, elements * bytesPerElement(view.type));
  }
  /// From the program's memory.
  void set(View view, const void* values, std::int64_t elements) {
    if (status_.ok()) status_ = space_.upload(view.data, values, elements * bytesPerElement(view.type));
  }
  Workspace workspace(std::int64_t bytes) {
    const std::int64_t size = bytes < kAlignmentBytes ? kAlignmentBytes : bytes;
    return {take(size, DataType::byte).data, size};
  }
  const Status& status() const { return status_; }

 private:
  /// Values between −1 and 1 without a pattern that a kernel could profit from; token ids stay 0.
  Status fill(View view, std::int64_t elements) {
    if (view.type != DataType::float32 && view.type != DataType::bfloat16) return Status::success();
    constexpr std::int64_t kPiece = std::int64_t{1} << 20;
    const std::int64_t width = bytesPerElement(view.type);
    std::vector<std::byte> piece(static_cast<std::size_t>(width * std::min(kPiece, elements)));
    const View values{piece.data(), view.type};
    std::uint32_t state = 12345;
    for (std::int64_t at = 0; at < elements; at += kPiece) {
      const std::int64_t count = std::min(kPiece, elements - at);
      for (std::int64_t i = 0; i < count; ++i) {
        state = state * 1664525u + 1013904223u;
        const float value = static_cast<float>(state >> 8) / 8388608.f - 1.f;
        if (view.type == DataType::float32) {
          values.as<float>()[i] = value;
        } else {
          values.as<std::uint16_t>()[i] = bfloat16FromFloat(value);
        }
      }
      INTERNEVO_RETURN_IF_ERROR(space_.upload(view.offset(at).data, piece.data(), width * count));
    }
    return Status::success();
  }

  std::int64_t budgetBytes_, usedBytes_ = 0;
  MemorySpace& space_;
  Status status_;
  std::vector<std::unique_ptr<Arena>> arenas_;
};

/// A share of the memory that a device has left, or the host for each of the ranks on it.
std::int64_t memoryBudgetBytes(const MemorySpace& space, int ranksOnHost);
/// What a device's memory holds, or this process, before anything is measured.
std::int64_t runtimeBytes(const MemorySpace& space);

}  // namespace internevo::probe
