// Instructions of sm_90a for DeviceThread: products of a warpgroup, barriers in memory, bulk copies (PTX ISA 8.8: 9.7.15 wgmma,
// 9.7.13.15 mbarrier, 9.7.9.27 cp.async.bulk, 9.7.19.5 setmaxnreg). Only nvcc compiles this. Compiled for another architecture
// the methods are empty, and so are the kernels that call them (launch_device.h).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backend/cuda/portable.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define INTERNEVO_SM90(...) asm volatile(__VA_ARGS__)
#else
#define INTERNEVO_SM90(...)
#endif

// Registers of a result, as operands and as text; the operands of the product follow them.
#define INTERNEVO_F4(d, i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define INTERNEVO_F16(d, i) \
  INTERNEVO_F4(d, i), INTERNEVO_F4(d, i + 1), INTERNEVO_F4(d, i + 2), INTERNEVO_F4(d, i + 3)
#define INTERNEVO_F32(d, i) INTERNEVO_F16(d, i), INTERNEVO_F16(d, i + 4)
#define INTERNEVO_F64(d, i) INTERNEVO_F32(d, i), INTERNEVO_F32(d, i + 8)
#define INTERNEVO_R16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define INTERNEVO_R32 INTERNEVO_R16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define INTERNEVO_R64                                                                    \
  INTERNEVO_R32                                                                          \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52" \
  ",%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

/// D (+)= A · B with A and B in shared memory. P0…P4: operands of the descriptors, of scale-d and of the transpositions.
#define INTERNEVO_PRODUCT_SHARED(N, REGISTERS, OPERANDS, P0, P1, P2, P3, P4)                               \
  INTERNEVO_SM90("{\n.reg .pred p;\nsetp.ne.b32 p, %" P2                                                   \
                 ", 0;\n"                                                                                  \
                 "wgmma.mma_async.sync.aligned.m64n" N "k16.f32.bf16.bf16 {" REGISTERS "}, %" P0 ", %" P1  \
                 ", p, 1, 1, %" P3 ", %" P4 ";\n}"                                                         \
                 : OPERANDS                                                                                \
                 : "l"(left), "l"(right), "r"(static_cast<int>(accumulate)), "n"(kLeftTransposed ? 1 : 0), \
                   "n"(kRightTransposed ? 1 : 0))
/// D (+)= A · B with A in registers: P0…P3, then B's descriptor, scale-d and its transposition.
#define INTERNEVO_PRODUCT_REGISTERS(N, REGISTERS, OPERANDS, P0, P1, P2, P3, P4, P5, P6)                   \
  INTERNEVO_SM90("{\n.reg .pred p;\nsetp.ne.b32 p, %" P5                                                  \
                 ", 0;\n"                                                                                 \
                 "wgmma.mma_async.sync.aligned.m64n" N "k16.f32.bf16.bf16 {" REGISTERS "}, {%" P0 ",%" P1 \
                 ",%" P2 ",%" P3 "}, %" P4 ", p, 1, 1, %" P6 ";\n}"                                       \
                 : OPERANDS                                                                               \
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right),                    \
                   "r"(static_cast<int>(accumulate)), "n"(kRightTransposed ? 1 : 0))

namespace internevo::cuda {

class WarpgroupInstructions {
 public:
  static __device__ __forceinline__ std::uint32_t sharedAddress(const void* pointer) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
  }

  // ---- products: m64nNk16, bfloat16, float32 sums; N = 8 · kCount ----
  template <bool kLeftTransposed, bool kRightTransposed, int kCount>
  __device__ __forceinline__ void multiplyShared(float (&d)[kCount][4], std::uint64_t left,
                                                 std::uint64_t right, bool accumulate) {
    static_assert(kCount == 4 || kCount == 8 || kCount == 16);
    if constexpr (kCount == 4) {
      INTERNEVO_PRODUCT_SHARED("32", INTERNEVO_R16, INTERNEVO_F16(d, 0), "16", "17", "18", "19", "20");
    } else if constexpr (kCount == 8) {
      INTERNEVO_PRODUCT_SHARED("64", INTERNEVO_R32, INTERNEVO_F32(d, 0), "32", "33", "34", "35", "36");
    } else {
      INTERNEVO_PRODUCT_SHARED("128", INTERNEVO_R64, INTERNEVO_F64(d, 0), "64", "65", "66", "67", "68");
    }
  }
  template <bool kRightTransposed, int kCount>
  __device__ __forceinline__ void multiplyRegisters(float (&d)[kCount][4], const std::uint32_t (&left)[4],
                                                    std::uint64_t right, bool accumulate) {
    static_assert(kCount == 8 || kCount == 16);
    if constexpr (kCount == 8) {
      INTERNEVO_PRODUCT_REGISTERS("64", INTERNEVO_R32, INTERNEVO_F32(d, 0), "32", "33", "34", "35", "36",
                                  "37", "38");
    } else {
      INTERNEVO_PRODUCT_REGISTERS("128", INTERNEVO_R64, INTERNEVO_F64(d, 0), "64", "65", "66", "67", "68",
                                  "69", "70");
    }
  }
  /// Before the first product, and between any access to registers of a product and that product.
  __device__ __forceinline__ void fenceProducts() {
    INTERNEVO_SM90("wgmma.fence.sync.aligned;" ::: "memory");
  }
  __device__ __forceinline__ void commitProducts() {
    INTERNEVO_SM90("wgmma.commit_group.sync.aligned;" ::: "memory");
  }
  template <int kNewest>
  __device__ __forceinline__ void waitProducts() {
    INTERNEVO_SM90("wgmma.wait_group.sync.aligned %0;" ::"n"(kNewest) : "memory");
  }
  /// Behind the wait, before the results are read: the compiler may not move the reading over the wait.
  template <int kCount>
  __device__ __forceinline__ void settle(float (&d)[kCount][4]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) asm volatile("" : "+f"(d[i][j])::"memory");
    }
  }

  // ---- barriers in shared memory ----
  __device__ __forceinline__ void initBarrier(MemoryBarrier* b, int count) {
    INTERNEVO_SM90("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(sharedAddress(b)), "r"(count) : "memory");
  }
  /// By the thread that made them, before the block's barrier behind which others use them.
  __device__ __forceinline__ void publishBarriers() {
    INTERNEVO_SM90("fence.mbarrier_init.release.cluster;" ::: "memory");
    INTERNEVO_SM90("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __device__ __forceinline__ void arrive(MemoryBarrier* b) {
    INTERNEVO_SM90("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(sharedAddress(b)) : "memory");
  }
  __device__ __forceinline__ void arriveExpecting(MemoryBarrier* b, int bytes) {
    INTERNEVO_SM90("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(sharedAddress(b)),
                   "r"(bytes)
                   : "memory");
  }
  /// Until the phase of this parity has completed; a barrier that never had one reads as parity 1.
  __device__ __forceinline__ void wait(MemoryBarrier* b, int parity) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    const std::uint32_t address = sharedAddress(b);
    std::uint32_t done = 0;
    while (done == 0) {
      asm volatile(
          "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(address), "r"(parity)
          : "memory");
    }
#endif
  }

  // ---- bulk copies: called by one thread ----
  __device__ __forceinline__ void prefetchMap(const TensorMap* map) {
    INTERNEVO_SM90("prefetch.tensormap [%0];" ::"l"(map) : "memory");
  }
  /// The box of the map at these coordinates (innermost first); its bytes are counted at the barrier.
  __device__ __forceinline__ void copyTile(void* target, const TensorMap* map, MemoryBarrier* b, int c0,
                                           int c1, int c2, int c3) {
    INTERNEVO_SM90(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
        "{%2,%3,%4,%5}], [%6];" ::"r"(sharedAddress(target)),
        "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(sharedAddress(b))
        : "memory");
  }
  /// Bytes at multiples of 16, a multiple of 16 of them.
  __device__ __forceinline__ void copyBulk(void* target, const void* source, int bytes, MemoryBarrier* b) {
    INTERNEVO_SM90(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            sharedAddress(target)),
        "l"(__cvta_generic_to_global(source)), "r"(bytes), "r"(sharedAddress(b))
        : "memory");
  }
  /// float32 of shared memory added to global memory.
  __device__ __forceinline__ void reduceAddBulk(float* target, const void* source, int bytes) {
    INTERNEVO_SM90("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(
                       __cvta_generic_to_global(target)),
                   "r"(sharedAddress(source)), "r"(bytes)
                   : "memory");
  }
  __device__ __forceinline__ void storeBulk(float* target, const void* source, int bytes) {
    INTERNEVO_SM90(
        "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(target)),
        "r"(sharedAddress(source)), "r"(bytes)
        : "memory");
  }
  __device__ __forceinline__ void commitBulk() { INTERNEVO_SM90("cp.async.bulk.commit_group;" ::: "memory"); }
  /// What this thread's copies read may be overwritten.
  __device__ __forceinline__ void waitBulkRead() {
    INTERNEVO_SM90("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
  /// What this thread's copies wrote is there.
  __device__ __forceinline__ void waitBulk() { INTERNEVO_SM90("cp.async.bulk.wait_group 0;" ::: "memory"); }

  /// A store that products or bulk copies will read: behind fenceProxy of this thread and a barrier.
  template <typename T>
  __device__ __forceinline__ void storeShared(void* target, const T& value) {
    *static_cast<T*>(target) = value;
  }
  __device__ __forceinline__ void fenceProxy() { INTERNEVO_SM90("fence.proxy.async;" ::: "memory"); }

  // ---- named barriers of the block, 1 to 15; registers ----
  __device__ __forceinline__ void syncNamed(int id, int threads) {
    INTERNEVO_SM90("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
  }
  __device__ __forceinline__ void arriveNamed(int id, int threads) {
    INTERNEVO_SM90("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
  }
  template <int kRegisters>
  __device__ __forceinline__ void releaseRegisters() {
    INTERNEVO_SM90("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
  }
  template <int kRegisters>
  __device__ __forceinline__ void takeRegisters() {
    INTERNEVO_SM90("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
  }

  // ---- between blocks ----
  __device__ __forceinline__ int atomicAddInteger(std::int32_t* target, std::int32_t value) {
    return ::atomicAdd(target, value);
  }
  __device__ __forceinline__ std::int32_t loadAcquire(const std::int32_t* source) {
    std::int32_t value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
                 : "=r"(value)
                 : "l"(__cvta_generic_to_global(source))
                 : "memory");
    return value;
  }
  /// Behind waitBulk too: the fence between the proxies comes first.
  __device__ __forceinline__ void addRelease(std::int32_t* target, std::int32_t value) {
    INTERNEVO_SM90("fence.proxy.async;" ::: "memory");
    __threadfence();
    asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(__cvta_generic_to_global(target)),
                 "r"(value)
                 : "memory");
  }
};

}  // namespace internevo::cuda
