// Instructions by themselves, on a GPU and on its model: the same kernel on the same numbers, whose results are compared bit by bit
// (check/instructions.cpp). One source, two libraries: nvcc's for a GPU, the host compiler's for the model. Two cases are faults, for
// tests of what runs the cases.
#pragma once

#include <cstdint>

namespace internevo::cuda {

struct KernelCaseName {
  const char* name;
  const char* what;
  bool warpgroups;  ///< needs sm_90a
};
constexpr KernelCaseName kKernelCases[] = {
    {"mma", "mma.sync m16n8k16, ldmatrix with and without .trans", false},
    {"cp-async", "cp.async, its groups, zeros where nothing is to be copied", false},
    {"cvt", "cvt.rn.bf16x2.f32: ties, denormals, infinities", false},
    {"shuffle", "shfl.sync.bfly over all masks", false},
    {"wgmma-rows", "wgmma m64n128k16, both sides in shared memory by rows", true},
    {"wgmma-columns", "wgmma m64n128k16, the right side by columns", true},
    {"wgmma-registers", "wgmma m64n128k16, the left side in registers", true},
    {"wgmma-transposed", "wgmma m64n64k16, both sides by columns", true},
    {"wgmma-inside-atom", "wgmma m64n32k16, 32 columns from 64 bytes inside the swizzle's atom (heads of 64)",
     true},
    {"wgmma-heads-64",
     "wgmma m64n128, n64 and n32 over heads of 64: all products of attention, scores stored by threads",
     true},
    {"wgmma-heads-128",
     "wgmma m64n128 and n64 over heads of 128: all products of attention, scores stored by threads", true},
    {"tensor-copy", "cp.async.bulk.tensor: the 128-byte swizzle, zeros outside the tensor", true},
    {"bulk",
     "cp.async.bulk to shared memory, cp.reduce.async.bulk and bulk stores from it, in the order of blocks",
     true},
    {"handover", "setmaxnreg, named barriers, mbarrier phases, fences of proxies between warpgroups", true},
};
constexpr const char* kFaultCases[] = {"trap", "endless"};

/// A call of a library. `output` has room for outputBytes; writtenBytes says how many the case has.
struct KernelCase {
  const char* name = nullptr;
  unsigned seed = 1;
  unsigned char* output = nullptr;
  std::int64_t outputBytes = 0, writtenBytes = 0;
  char message[512] = "";
  /// A line for each tensor of the output, in order: "name type columns elements"; type f32, bf16, u32 or i32.
  char layout[1024] = "";
};
/// Returns 0; 1 with a message; 2 with one where this GPU has no such instructions.
using RunKernelCase = int (*)(KernelCase*);
constexpr const char* kRunKernelCaseName = "internevo_kernel_case_2";

}  // namespace internevo::cuda
