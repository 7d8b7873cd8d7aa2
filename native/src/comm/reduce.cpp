#include "comm/reduce.h"

#include <algorithm>

namespace internevo::cpu {

namespace {

constexpr std::int64_t kBlock = 1024;  // elements whose partial results fit the L1 cache

struct Bfloat16 {
  std::uint16_t bits;
};
template <typename T>
struct Sum {
  using Type = T;
};
template <>
struct Sum<Bfloat16> {
  using Type = float;
};

template <typename T>
T widen(T value) {
  return value;
}
float widen(Bfloat16 value) { return floatFromBfloat16(value.bits); }
template <typename T>
void narrow(T value, T* target) {
  *target = value;
}
void narrow(float value, Bfloat16* target) { target->bits = bfloat16FromFloat(value); }

struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {
  template <typename T>
  T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

int largestPowerOfTwoBelow(int count) {
  int power = 1;
  while (2 * power < count) power *= 2;
  return power;
}

/// result[0, n) = tree over inputs[first, first + count); n ≤ kBlock.
template <typename T, typename Combine>
void tree(const void* const* inputs, int first, int count, std::int64_t offset, std::int64_t n,
          Combine combine, typename Sum<T>::Type* result) {
  const T* const a = static_cast<const T*>(inputs[first]) + offset;
  if (count == 1) {
    for (std::int64_t i = 0; i < n; ++i) result[i] = widen(a[i]);
    return;
  }
  if (count == 2) {
    const T* const b = static_cast<const T*>(inputs[first + 1]) + offset;
    for (std::int64_t i = 0; i < n; ++i) result[i] = combine(widen(a[i]), widen(b[i]));
    return;
  }
  const int half = largestPowerOfTwoBelow(count);
  typename Sum<T>::Type right[kBlock];
  tree<T>(inputs, first, half, offset, n, combine, result);
  tree<T>(inputs, first + half, count - half, offset, n, combine, right);
  for (std::int64_t i = 0; i < n; ++i) result[i] = combine(result[i], right[i]);
}

template <typename T, typename Combine>
void reduceBlocks(const void* const* inputs, int count, std::int64_t offset, std::int64_t elements,
                  Combine combine, void* output) {
  typename Sum<T>::Type result[kBlock];
  for (std::int64_t at = 0; at < elements; at += kBlock) {
    const std::int64_t n = std::min(kBlock, elements - at);
    tree<T>(inputs, 0, count, offset + at, n, combine, result);
    T* const target = static_cast<T*>(output) + at;
    for (std::int64_t i = 0; i < n; ++i) narrow(result[i], target + i);
  }
}

template <typename Combine>
void reduceTyped(DataType type, const void* const* inputs, int count, std::int64_t offset,
                 std::int64_t elements, Combine combine, void* output) {
  switch (type) {
    case DataType::float32: return reduceBlocks<float>(inputs, count, offset, elements, combine, output);
    case DataType::bfloat16: return reduceBlocks<Bfloat16>(inputs, count, offset, elements, combine, output);
    case DataType::float64: return reduceBlocks<double>(inputs, count, offset, elements, combine, output);
    case DataType::int64: return reduceBlocks<std::int64_t>(inputs, count, offset, elements, combine, output);
    case DataType::int32:
    case DataType::byte: return;  // refused by the callers
  }
}

}  // namespace

void reduceTree(DataType type, ReduceOperation operation, const void* const* inputs, int count,
                std::int64_t offset, std::int64_t elements, void* output) {
  if (operation == ReduceOperation::sum) {
    reduceTyped(type, inputs, count, offset, elements, Add{}, output);
  } else {
    reduceTyped(type, inputs, count, offset, elements, Larger{}, output);
  }
}

}  // namespace internevo::cpu
