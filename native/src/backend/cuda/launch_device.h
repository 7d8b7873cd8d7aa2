// Threads of a GPU. Only nvcc compiles this.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/launch.h"
#include "backend/cuda/warpgroup_device.h"

namespace internevo::cuda {

class DeviceThread : public WarpgroupInstructions {
 public:
  __device__ __forceinline__ int x() const { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ int threads() const { return static_cast<int>(blockDim.x); }
  __device__ __forceinline__ std::int64_t blockX() const { return blockIdx.x; }
  __device__ __forceinline__ std::int64_t blockY() const { return blockIdx.y; }
  __device__ __forceinline__ std::int64_t blockZ() const { return blockIdx.z; }
  __device__ __forceinline__ std::int64_t gridX() const { return gridDim.x; }

  __device__ __forceinline__ void sync() { __syncthreads(); }
  __device__ __forceinline__ void syncWarp() { __syncwarp(); }
  template <typename T>
  __device__ __forceinline__ T shuffleXor(T value, int mask) {
    return __shfl_xor_sync(0xffffffffu, value, mask);
  }
  __device__ __forceinline__ unsigned char* shared() {
    extern __shared__ __align__(1024) unsigned char memory[];
    return memory;
  }
  __device__ __forceinline__ void atomicAdd(std::int64_t* target, std::int64_t value) {
    ::atomicAdd(reinterpret_cast<unsigned long long*>(target), static_cast<unsigned long long>(value));
  }

  __device__ __forceinline__ float exponential2(float value) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
    return result;
  }

  /// d[4] += a · b of one warp: bfloat16 m16n8k16, float32 sums. Fragments as PTX defines them.
  __device__ __forceinline__ void multiply(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                           std::uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  /// Four 8×8 matrices of 16-bit elements out of shared memory; lane l gives the address of row l mod 8 of matrix l / 8.
  __device__ __forceinline__ void loadMatrices(std::uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
                 : "memory");
  }
  __device__ __forceinline__ void loadMatricesTransposed(std::uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
                 : "memory");
  }

  /// 16 bytes of global memory to shared, zeros where not `valid`; there after the wait for their group and a sync.
  __device__ __forceinline__ void copyAsync(void* target, const void* source, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(target))),
                 "l"(source), "r"(valid ? 16 : 0)
                 : "memory");
  }
  __device__ __forceinline__ void commitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  /// Of the groups committed, all but the newest Newest are there.
  template <int Newest>
  __device__ __forceinline__ void waitCopies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(Newest) : "memory");
  }
};

/// Kernels of sm_90a say so by kWarpgroups; for another architecture their code is empty, and nobody starts them.
template <class Kernel>
concept OnWarpgroups = requires {
  Kernel::kWarpgroups;
};

template <class Kernel>
requires(!OnWarpgroups<Kernel>) __global__ void __launch_bounds__(Kernel::kThreads)
    runKernel(const __grid_constant__ Kernel kernel) {
  DeviceThread thread;
  kernel(thread);
}
/// One block a multiprocessor, so that warpgroups can give registers to one another (setmaxnreg needs this bound).
template <OnWarpgroups Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1) runKernel(const __grid_constant__ Kernel kernel) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  DeviceThread thread;
  kernel(thread);
#endif
}

template <class Kernel>
Status launch(const Queue& queue, const Grid& grid, const Kernel& kernel, const char* name) {
  constexpr int kStaticLimit = 48 << 10;
  if (grid.sharedBytes > kStaticLimit) {
    INTERNEVO_RETURN_IF_ERROR(
        cudaStatus(cudaFuncSetAttribute(runKernel<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        grid.sharedBytes),
                   name));
  }
  runKernel<<<dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
                   static_cast<unsigned>(grid.z)),
              Kernel::kThreads, static_cast<std::size_t>(grid.sharedBytes), queue.stream>>>(kernel);
  return cudaStatus(cudaGetLastError(), name);
}

}  // namespace internevo::cuda
