#include "internevo/backend.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/gemm_bfloat16.h"

namespace internevo {

std::unique_ptr<Backend> createCpuBackend(int threads) { return std::make_unique<cpu::CpuBackend>(threads); }

namespace cpu {

std::string CpuBackend::name() const {
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
  switch (bfloat16Product()) {
    case Bfloat16Product::tiles: return "cpu-avx512-amx";
    case Bfloat16Product::vectors: return "cpu-avx512-bf16";
    case Bfloat16Product::none: return "cpu-avx512";
  }
  return "cpu-avx512";
#elif defined(__AVX2__) && defined(__FMA__)
  return "cpu-avx2";
#else
  return "cpu-portable";
#endif
}

}  // namespace cpu
}  // namespace internevo
