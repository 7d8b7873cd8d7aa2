// What kernels are written in: code that nvcc compiles for a device and any C++ compiler for the model of one.
//
// A kernel is a struct: its members are the arguments, its call operator is what one thread does. The thread is an object
// that knows its place, waits for the others of its block or warp, and has what only a device has (shuffles, matrix
// fragments, asynchronous copies). launch.h runs kernels on a GPU; in a program without CUDA it runs every thread of every
// block on the CPU, with the same code, so that indices, masks and barriers are tested where no GPU is.
#pragma once

#include <cmath>
#include <cstdint>

#include "internevo/tensor.h"

#ifdef __CUDACC__
#define INTERNEVO_DEVICE __device__ __forceinline__
#define INTERNEVO_BOTH __host__ __device__ __forceinline__
#else
#define INTERNEVO_DEVICE inline
#define INTERNEVO_BOTH inline
#endif

namespace internevo::cuda {

constexpr int kWarp = 32;

/// Storage type of a bfloat16 element.
struct Bfloat16 {
  std::uint16_t bits;
};

/// 16 bytes that are moved at once.
struct alignas(16) Vector16 {
  std::uint32_t words[4];
};

/// What the copy engine is told of a tensor (PTX ISA, "Tensor map"): opaque, made by makeTensorMap.
struct alignas(128) TensorMap {
  std::uint64_t words[16];
};

/// An object of the block's shared memory that counts arrivals and bytes (PTX ISA, "mbarrier").
struct alignas(8) MemoryBarrier {
  std::uint64_t word;
};

INTERNEVO_BOTH std::uint32_t bitsOf(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(value);
#else
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  return bits;
#endif
}
INTERNEVO_BOTH float floatOf(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
#endif
}

INTERNEVO_BOTH float toFloat(float value) { return value; }
INTERNEVO_BOTH float toFloat(Bfloat16 value) { return floatOf(static_cast<std::uint32_t>(value.bits) << 16); }

/// Round to nearest even; NaN stays NaN. The bits of bfloat16FromFloat on the host.
INTERNEVO_BOTH std::uint16_t bfloat16Bits(float value) {
  std::uint32_t bits = bitsOf(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<std::uint16_t>(bits >> 16);
}
/// Two neighbouring bfloat16 elements, the first in the lower half.
INTERNEVO_BOTH std::uint32_t packBfloat16(float low, float high) {
#ifdef __CUDA_ARCH__
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
      : "=r"(pair)
      : "f"(high), "f"(low));  // one instruction for two; NaN stays NaN
  return pair;
#endif
  return static_cast<std::uint32_t>(bfloat16Bits(low)) | static_cast<std::uint32_t>(bfloat16Bits(high)) << 16;
}
INTERNEVO_BOTH void storeFloat(float* target, float value) { *target = value; }
INTERNEVO_BOTH void storeFloat(Bfloat16* target, float value) { target->bits = bfloat16Bits(value); }

INTERNEVO_BOTH float larger(float a, float b) { return a > b ? a : b; }
INTERNEVO_BOTH float minusInfinity() { return floatOf(0xff800000u); }

template <typename T>
INTERNEVO_BOTH T smaller(T a, T b) {
  return b < a ? b : a;
}

}  // namespace internevo::cuda
