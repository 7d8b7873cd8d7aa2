// Elements in groups that are moved at once: 8 neighbours where alignment allows, else single ones.
#pragma once

#include "backend/cuda/portable.h"

namespace internevo::cuda {

template <int N, typename T>
INTERNEVO_DEVICE void loadPiece(const T* source, float (&values)[N]) {
  if constexpr (N == 1) {
    values[0] = toFloat(source[0]);
  } else if constexpr (sizeof(T) == 4) {
    static_assert(N == 8);
    for (int part = 0; part < 2; ++part) {
      const Vector16 v = reinterpret_cast<const Vector16*>(source)[part];
      for (int i = 0; i < 4; ++i) values[4 * part + i] = floatOf(v.words[i]);
    }
  } else {
    static_assert(N == 8);
    const Vector16 v = *reinterpret_cast<const Vector16*>(source);
    for (int i = 0; i < 4; ++i) {
      values[2 * i] = floatOf(v.words[i] << 16);
      values[2 * i + 1] = floatOf(v.words[i] & 0xffff0000u);
    }
  }
}

template <int N, typename T>
INTERNEVO_DEVICE void storePiece(T* target, const float (&values)[N]) {
  if constexpr (N == 1) {
    storeFloat(target, values[0]);
  } else if constexpr (sizeof(T) == 4) {
    for (int part = 0; part < 2; ++part) {
      Vector16 v;
      for (int i = 0; i < 4; ++i) v.words[i] = bitsOf(values[4 * part + i]);
      reinterpret_cast<Vector16*>(target)[part] = v;
    }
  } else {
    Vector16 v;
    for (int i = 0; i < 4; ++i) v.words[i] = packBfloat16(values[2 * i], values[2 * i + 1]);
    *reinterpret_cast<Vector16*>(target) = v;
  }
}

/// The value as it is stored.
template <typename T>
INTERNEVO_DEVICE float roundedTo(float value) {
  if constexpr (sizeof(T) == 4) return value;
  return floatOf(static_cast<std::uint32_t>(bfloat16Bits(value)) << 16);
}

}  // namespace internevo::cuda
