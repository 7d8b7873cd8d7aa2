#include "backend/cpu/processor.h"

#include <cstdlib>

#include "comm/reduce.h"

#if defined(INTERNEVO_HAS_PORTABLE)
extern "C" const internevo::cpu::Variant internevo_cpu_portable;
#endif
#if defined(INTERNEVO_HAS_AVX2)
extern "C" const internevo::cpu::Variant internevo_cpu_avx2;
#endif
#if defined(INTERNEVO_HAS_AVX512)
extern "C" const internevo::cpu::Variant internevo_cpu_avx512;
#endif
#if defined(INTERNEVO_HAS_AVX512_BF16)
extern "C" const internevo::cpu::Variant internevo_cpu_avx512_bf16;
#endif

namespace internevo {

namespace cpu {

std::vector<const Variant*> variantsOfThisProcessor() {
  std::vector<const Variant*> result;
#if defined(INTERNEVO_HAS_AVX512_BF16)
  if (__builtin_cpu_supports("x86-64-v4") && __builtin_cpu_supports("avx512bf16"))
    result.push_back(&internevo_cpu_avx512_bf16);
#endif
#if defined(INTERNEVO_HAS_AVX512)
  if (__builtin_cpu_supports("x86-64-v4")) result.push_back(&internevo_cpu_avx512);
#endif
#if defined(INTERNEVO_HAS_AVX2)
  if (__builtin_cpu_supports("x86-64-v3")) result.push_back(&internevo_cpu_avx2);
#endif
  result.push_back(&internevo_cpu_portable);
  return result;
}

Status chooseVariant(const std::string& wished, const Variant** result) {
  const std::vector<const Variant*> all = variantsOfThisProcessor();
  *result = all.front();
  if (wished.empty()) return Status::success();
  std::string names;
  for (const Variant* const each : all) {
    if (wished == each->name) {
      *result = each;
      return Status::success();
    }
    names += (names.empty() ? "" : ", ") + std::string(each->name);
  }
  return {StatusCode::badConfig, "INTERNEVO_CPU is \"" + wished + "\", and this processor runs " + names +
                                     ": set it to one of these, or unset it to take the first"};
}

namespace {

struct Choice {
  const Variant* variant = nullptr;
  Status status;
};

const Choice& choice() {
  static const Choice made = [] {
    Choice result;
    const char* const wished = std::getenv("INTERNEVO_CPU");
    result.status = chooseVariant(wished == nullptr ? "" : wished, &result.variant);
    return result;
  }();
  return made;
}

}  // namespace

const Variant& variant() { return *choice().variant; }

}  // namespace cpu

Status openCpuBackend(int threads, std::unique_ptr<Backend>* result) {
  if (!cpu::choice().status.ok()) return cpu::choice().status;
  *result = createCpuBackend(threads);
  return Status::success();
}

std::unique_ptr<Backend> createCpuBackend(int threads) {
  return std::unique_ptr<Backend>(cpu::variant().createBackend(threads));
}

void reduceTree(DataType type, ReduceOperation operation, const void* const* inputs, int count,
                std::int64_t offset, std::int64_t elements, void* output) {
  cpu::variant().reduceTree(type, operation, inputs, count, offset, elements, output);
}

}  // namespace internevo
