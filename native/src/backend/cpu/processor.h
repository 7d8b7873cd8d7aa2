// Which compilation of the CPU backend a program uses. Each is compiled from the same sources for one instruction set; its symbols
// are its own but for one table of entries (CMakeLists.txt).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "internevo/backend.h"
#include "internevo/device_groups.h"

namespace internevo::cpu {

/// What one compilation offers.
struct Variant {
  const char* name;  ///< portable, avx2, avx512 or avx512-bf16
  Backend* (*createBackend)(int threads);
  /// As reduceTree (comm/reduce.h).
  void (*reduceTree)(DataType type, ReduceOperation operation, const void* const* inputs, int count,
                     std::int64_t offset, std::int64_t elements, void* output);
};

/// Those that this processor can run, the best first. Never empty.
std::vector<const Variant*> variantsOfThisProcessor();

/// The best of them, or the one that INTERNEVO_CPU names; found once. A wrong name counts as none: openCpuBackend refuses it.
const Variant& variant();

/// Of a name as INTERNEVO_CPU has it (empty: no wish). Errors: badConfig naming those that can be given.
Status chooseVariant(const std::string& wished, const Variant** result);

}  // namespace internevo::cpu
