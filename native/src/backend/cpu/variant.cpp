// The one thing of a compilation that others see.
#include "backend/cpu/bfloat16_tiles.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/processor.h"
#include "comm/reduce.h"

namespace internevo::cpu {

namespace {

#if defined(INTERNEVO_BFLOAT16_TILES)
constexpr const char* kName = "avx512-bf16";
#elif defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
constexpr const char* kName = "avx512";
#elif defined(__AVX2__) && defined(__FMA__)
constexpr const char* kName = "avx2";
#else
constexpr const char* kName = "portable";
#endif

Backend* createBackend(int threads) { return new CpuBackend(threads); }

}  // namespace

std::string CpuBackend::name() const {
  return std::string("cpu-") + (bfloat16Product() == Bfloat16Product::tiles ? "avx512-amx" : kName);
}

#define INTERNEVO_JOINED(a, b) a##b
#define INTERNEVO_ENTRY(variant) INTERNEVO_JOINED(internevo_cpu_, variant)
extern "C" const Variant INTERNEVO_ENTRY(INTERNEVO_CPU_VARIANT);
const Variant INTERNEVO_ENTRY(INTERNEVO_CPU_VARIANT) = {kName, createBackend, reduceTree};

}  // namespace internevo::cpu
