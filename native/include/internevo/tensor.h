// Storage types and untyped views of memory that somebody else owns (normally the rank's arena).
#pragma once

#include <cstddef>
#include <cstdint>

namespace internevo {

enum class DataType : std::uint8_t { float32, bfloat16, float64, int64, int32, byte };

constexpr std::int64_t bytesPerElement(DataType type) noexcept {
  switch (type) {
    case DataType::float32: return 4;
    case DataType::bfloat16: return 2;
    case DataType::float64: return 8;
    case DataType::int64: return 8;
    case DataType::int32: return 4;
    case DataType::byte: return 1;
  }
  return 0;
}

/// A pointer with its element type. Shapes travel beside it, in each operator's arguments.
struct View {
  void* data = nullptr;
  DataType type = DataType::float32;

  bool empty() const noexcept { return data == nullptr; }
  template <typename T>
  T* as() const noexcept {
    return static_cast<T*>(data);
  }
  /// The view that starts `elements` further on.
  View offset(std::int64_t elements) const noexcept {
    return {static_cast<std::byte*>(data) + elements * bytesPerElement(type), type};
  }
};

struct ConstView {
  const void* data = nullptr;
  DataType type = DataType::float32;

  ConstView() = default;
  ConstView(const void* pointer, DataType dataType) : data(pointer), type(dataType) {}
  ConstView(const View& view) : data(view.data), type(view.type) {}  // NOLINT: views convert freely

  bool empty() const noexcept { return data == nullptr; }
  template <typename T>
  const T* as() const noexcept {
    return static_cast<const T*>(data);
  }
  ConstView offset(std::int64_t elements) const noexcept {
    return {static_cast<const std::byte*>(data) + elements * bytesPerElement(type), type};
  }
};

/// Scratch memory that an operator may overwrite; 64-byte aligned.
struct Workspace {
  void* data = nullptr;
  std::int64_t bytes = 0;
};

/// Round-to-nearest-even bfloat16, stored as its 16 bits. NaN stays NaN.
inline std::uint16_t bfloat16FromFloat(float value) noexcept {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<std::uint16_t>(bits >> 16);
}

inline float floatFromBfloat16(std::uint16_t value) noexcept {
  const std::uint32_t bits = static_cast<std::uint32_t>(value) << 16;
  float result;
  __builtin_memcpy(&result, &bits, 4);
  return result;
}

constexpr std::int64_t kAlignmentBytes = 64;

constexpr std::int64_t alignUp(std::int64_t value, std::int64_t multiple) noexcept {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace internevo
