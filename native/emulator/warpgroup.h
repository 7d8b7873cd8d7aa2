// The model's instructions of sm_90: products of a warpgroup, barriers in memory, bulk copies, named barriers, registers.
// Their meaning is that of the PTX ISA 8.8, sections 9.7.13 (mbarrier, barrier.cta), 9.7.9.27 (cp.async.bulk and tensor maps) and
// 9.7.15 (wgmma).
//
// Products and copies happen as late as their waits allow, in thread order 1 as early as they may; until then registers of a
// result are NaN and so is the memory that a copy will fill. What is wrong on a device is an error here: see warpgroup.cpp and
// bulk.cpp for what is found.
#pragma once

#include <cstdint>
#include <cstring>

#include "backend/cuda/portable.h"

namespace internevo::cuda::model {

/// One thread's part of wgmma.mma_async m64nNk16.
struct ProductLane {
  float* d = nullptr;  ///< [n / 2]
  int n = 0;
  bool accumulate = false;                   ///< scale-d
  const std::uint32_t* leftWords = nullptr;  ///< [4], or null: `left` is a descriptor
  std::uint64_t left = 0, right = 0;
  bool leftTransposed = false, rightTransposed = false;
};

void issueProduct(const ProductLane& lane);
void fenceProducts();
void commitProducts();
void waitProducts(int newest);
void requireSettled(const float* d, int count);
/// An instruction wrote registers of this thread: the next product needs a wgmma.fence.
void touchRegisters();

void initBarrier(MemoryBarrier* barrier, int count);
void publishBarriers();
void arriveBarrier(MemoryBarrier* barrier, int expectedBytes);
void waitBarrier(MemoryBarrier* barrier, int parity);
void copyTile(void* target, const TensorMap* map, MemoryBarrier* barrier, const int (&at)[4]);
void copyBulk(void* target, const void* source, int bytes, MemoryBarrier* barrier);
void reduceBulk(float* target, const void* source, int bytes, bool add);
void commitBulk();
void waitBulk(int newest, bool readOnly);
void storeSharedBytes(void* target, const void* value, int bytes);
void fenceProxy();
void namedBarrier(int id, int threads, bool wait);
void setRegisters(int registers, bool more);
void requireWritten();  ///< no bulk copy of this thread is under way

std::uint32_t sharedAddressOf(const void* pointer, std::int64_t bytes);

/// What ModelThread has of sm_90; DeviceThread has the same calls (warpgroup_device.h).
class WarpgroupInstructions {
 public:
  std::uint32_t sharedAddress(const void* pointer) { return sharedAddressOf(pointer, 1); }

  // ---- products ----
  template <bool kLeftTransposed, bool kRightTransposed, int kCount>
  void multiplyShared(float (&d)[kCount][4], std::uint64_t left, std::uint64_t right, bool accumulate) {
    issueProduct({&d[0][0], 8 * kCount, accumulate, nullptr, left, right, kLeftTransposed, kRightTransposed});
  }
  template <bool kRightTransposed, int kCount>
  void multiplyRegisters(float (&d)[kCount][4], const std::uint32_t (&left)[4], std::uint64_t right,
                         bool accumulate) {
    issueProduct({&d[0][0], 8 * kCount, accumulate, left, 0, right, false, kRightTransposed});
  }
  void fenceProducts() { model::fenceProducts(); }
  void commitProducts() { model::commitProducts(); }
  template <int kNewest>
  void waitProducts() {
    model::waitProducts(kNewest);
  }
  template <int kCount>
  void settle(float (&d)[kCount][4]) {
    requireSettled(&d[0][0], 4 * kCount);
  }

  // ---- barriers and copies ----
  void initBarrier(MemoryBarrier* b, int count) { model::initBarrier(b, count); }
  void publishBarriers() { model::publishBarriers(); }
  void arrive(MemoryBarrier* b) { model::arriveBarrier(b, 0); }
  void arriveExpecting(MemoryBarrier* b, int bytes) { model::arriveBarrier(b, bytes); }
  void wait(MemoryBarrier* b, int parity) { model::waitBarrier(b, parity); }
  void copyTile(void* target, const TensorMap* map, MemoryBarrier* b, int c0, int c1, int c2, int c3) {
    model::copyTile(target, map, b, {c0, c1, c2, c3});
  }
  void copyBulk(void* target, const void* source, int bytes, MemoryBarrier* b) {
    model::copyBulk(target, source, bytes, b);
  }
  void prefetchMap(const TensorMap*) {}
  void reduceAddBulk(float* target, const void* source, int bytes) {
    reduceBulk(target, source, bytes, true);
  }
  void storeBulk(float* target, const void* source, int bytes) { reduceBulk(target, source, bytes, false); }
  void commitBulk() { model::commitBulk(); }
  void waitBulkRead() { model::waitBulk(0, true); }
  void waitBulk() { model::waitBulk(0, false); }
  template <typename T>
  void storeShared(void* target, const T& value) {
    storeSharedBytes(target, &value, sizeof value);
  }
  void fenceProxy() { model::fenceProxy(); }
  void syncNamed(int id, int threads) { namedBarrier(id, threads, true); }
  void arriveNamed(int id, int threads) { namedBarrier(id, threads, false); }
  template <int kRegisters>
  void releaseRegisters() {
    setRegisters(kRegisters, false);
  }
  template <int kRegisters>
  void takeRegisters() {
    setRegisters(kRegisters, true);
  }

  // ---- between blocks: they run one after the other ----
  int atomicAddInteger(std::int32_t* target, std::int32_t value) {
    const std::int32_t before = *target;
    *target += value;
    return before;
  }
  std::int32_t loadAcquire(const std::int32_t* source);
  void addRelease(std::int32_t* target, std::int32_t value) {
    requireWritten();
    *target += value;
  }
};

}  // namespace internevo::cuda::model
