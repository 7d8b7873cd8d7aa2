#include "cuda/kernel_cases.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cuda/instruction_kernels.h"

namespace internevo::cuda {

namespace {

/// What a case leaves: its tensors one behind the other, and what they are (KernelCase::layout).
struct Output {
  std::vector<unsigned char> bytes;
  std::string layout;
};
const char* typeName(const float*) { return "f32"; }
const char* typeName(const std::uint16_t*) { return "bf16"; }
const char* typeName(const std::uint32_t*) { return "u32"; }
const char* typeName(const std::int32_t*) { return "i32"; }

/// Memory of the device, for one case.
class Room {
 public:
  Room() = default;
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  ~Room() {
    for (void* each : taken_) release(each);
  }

  template <typename T>
  T* take(const std::vector<T>& values) {
    void* const data = allocate(values.size() * sizeof(T));
    if (data != nullptr) upload(data, values.data(), values.size() * sizeof(T));
    return static_cast<T*>(data);
  }
  /// Behind a launch: waits for it, and appends a tensor of `columns` columns to *output.
  template <typename T>
  void read(const char* name, const T* data, std::size_t count, std::size_t columns, Output* output) {
    const std::size_t at = output->bytes.size();
    output->bytes.resize(at + count * sizeof(T));
    output->layout += std::string(name) + " " + typeName(data) + " " + std::to_string(columns) + " " +
                      std::to_string(count) + "\n";
    if (status.ok()) download(output->bytes.data() + at, data, count * sizeof(T));
  }

  Status status;

 private:
#ifdef INTERNEVO_CUDA_DEVICE
  void* allocate(std::size_t bytes) {
    void* data = nullptr;
    if (status.ok()) status = cudaStatus(cudaMalloc(&data, bytes), "cudaMalloc");
    if (data != nullptr) taken_.push_back(data);
    return data;
  }
  void upload(void* target, const void* host, std::size_t bytes) {
    status = cudaStatus(cudaMemcpy(target, host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  void download(void* host, const void* source, std::size_t bytes) {
    status = cudaStatus(cudaDeviceSynchronize(), "the kernel");
    if (status.ok())
      status = cudaStatus(cudaMemcpy(host, source, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  }
  static void release(void* data) { static_cast<void>(cudaFree(data)); }
#else
  void* allocate(std::size_t bytes) {
    constexpr std::size_t kAlign = 256;  // as cudaMalloc's
    taken_.push_back(std::aligned_alloc(kAlign, (bytes + kAlign - 1) / kAlign * kAlign));
    return taken_.back();
  }
  static void upload(void* target, const void* host, std::size_t bytes) { std::memcpy(target, host, bytes); }
  static void download(void* host, const void* source, std::size_t bytes) {
    std::memcpy(host, source, bytes);
  }
  static void release(void* data) { std::free(data); }
#endif
  std::vector<void*> taken_;
};

std::vector<std::uint16_t> smallIntegers(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<std::uint16_t> values(count);
  for (std::uint16_t& v : values)
    v = bfloat16FromFloat(static_cast<float>(static_cast<int>(engine() % 9) - 4));
  return values;
}
std::vector<float> smallFloats(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(static_cast<int>(engine() % 33) - 16);
  return values;
}

Status mapOf(const void* data, std::int64_t columns, std::int64_t rows, std::int64_t heads,
             std::int64_t batch, int boxRows, TensorMap* map) {
  TensorBox box;
  box.data = data;
  box.extent[0] = columns, box.extent[1] = rows, box.extent[2] = heads, box.extent[3] = batch;
  box.strideBytes[0] = 2 * columns * heads, box.strideBytes[1] = 2 * columns,
  box.strideBytes[2] = 2 * columns * heads * rows;
  box.box[1] = boxRows;
  return makeTensorMap(box, map);
}

template <class Kernel>
Status start(const Kernel& kernel, const char* name, std::int64_t blocks = 1) {
  return launch(Queue{}, Grid{blocks, 1, 1, Kernel::kSharedBytes}, kernel, name);
}

Status fragments(unsigned seed, Output* output) {
  Room room;
  const auto* const a = room.take(smallIntegers(256, seed));
  const auto* const b = room.take(smallIntegers(256, seed + 1));
  for (const bool transposed : {false, true}) {
    float* const c = room.take(std::vector<float>(256));
    INTERNEVO_RETURN_IF_ERROR(room.status);
    INTERNEVO_RETURN_IF_ERROR(start(Fragments{a, b, c, transposed}, "fragments"));
    room.read(transposed ? "product by columns" : "product by rows", c, 256, 16, output);
  }
  return room.status;
}

Status copies(unsigned seed, Output* output) {
  Room room;
  const float* const source = room.take(smallFloats(256, seed));
  float* const result = room.take(std::vector<float>(256));
  INTERNEVO_RETURN_IF_ERROR(room.status);
  INTERNEVO_RETURN_IF_ERROR(start(Copies<0>{source, result}, "copies"));
  room.read("copied", result, 256, 128, output);
  return room.status;
}

struct Round {
  static constexpr int kThreads = 128, kSharedBytes = 0;
  const float* source;
  std::uint32_t* result;
  int count;
  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    for (int i = t.x(); i + 1 < count; i += kThreads) result[i] = packBfloat16(source[i], source[i + 1]);
  }
};

Status rounding(unsigned seed, Output* output) {
  std::mt19937 engine(seed);
  std::vector<float> values;
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (const std::uint32_t mantissa : {0u, 0x8000u, 0x18000u, 0x7fffffu, 0x7f8000u, 0x7f7fffu, 1u, 0x8001u,
                                         static_cast<std::uint32_t>(engine()) & 0x7fffffu}) {
      if (exponent == 255 && mantissa != 0) continue;  // what a NaN's other bits become is nobody's promise
      for (const std::uint32_t sign : {0u, 0x80000000u})
        values.push_back(floatOf(sign | exponent << 23 | mantissa));
    }
  }
  Room room;
  const auto count = static_cast<int>(values.size());
  const float* const source = room.take(values);
  std::uint32_t* const result = room.take(std::vector<std::uint32_t>(values.size()));
  INTERNEVO_RETURN_IF_ERROR(room.status);
  INTERNEVO_RETURN_IF_ERROR(start(Round{source, result, count}, "cvt"));
  room.read("rounded pairs", result, values.size(), values.size(), output);
  return room.status;
}

struct Exchange {
  static constexpr int kThreads = 64, kSharedBytes = 0;
  const float* source;  ///< [64]
  float* result;        ///< [31, 64]
  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    for (int mask = 1; mask < kWarp; ++mask)
      result[(mask - 1) * kThreads + t.x()] = t.shuffleXor(source[t.x()], mask);
  }
};

Status exchange(unsigned seed, Output* output) {
  Room room;
  const float* const source = room.take(smallFloats(64, seed));
  float* const result = room.take(std::vector<float>(31 * 64));
  INTERNEVO_RETURN_IF_ERROR(room.status);
  INTERNEVO_RETURN_IF_ERROR(start(Exchange{source, result}, "shuffle"));
  room.read("exchanged", result, 31 * 64, 64, output);
  return room.status;
}

Status products(Multiply::Way way, unsigned seed, Output* output) {
  Room room;
  const auto* const a = room.take(smallIntegers(64 * 128, seed));
  const auto* const b = room.take(smallIntegers(128 * 128, seed + 1));
  const std::size_t count = 64 * static_cast<std::size_t>(Multiply::columnsOf(way));
  float* const d = room.take(std::vector<float>(count));
  INTERNEVO_RETURN_IF_ERROR(room.status);
  Multiply kernel{{}, {}, d, way};
  INTERNEVO_RETURN_IF_ERROR(mapOf(a, 128, 64, 1, 1, 64, &kernel.a));
  INTERNEVO_RETURN_IF_ERROR(mapOf(b, 128, 128, 1, 1, 128, &kernel.b));
  INTERNEVO_RETURN_IF_ERROR(start(kernel, "multiply"));
  room.read("product", d, count, static_cast<std::size_t>(Multiply::columnsOf(way)), output);
  return room.status;
}

template <int kHead>
Status attentionProducts(unsigned seed, Output* output) {
  using Kernel = AttentionProducts<kHead>;
  constexpr std::size_t kKeys = Kernel::kKeys, kQueries = Kernel::kQueries;
  Room room;
  const auto* const keys = room.take(smallIntegers(kKeys * kHead, seed));
  const auto* const queries = room.take(smallIntegers(kQueries * kHead, seed + 1));
  Kernel kernel;
  kernel.square = room.take(std::vector<float>(64 * kKeys));
  kernel.weighted = room.take(std::vector<float>(64 * kHead));
  kernel.scores = room.take(std::vector<float>(kKeys * kQueries));
  kernel.gKeys = room.take(std::vector<float>(kKeys * kHead));
  kernel.gQueries = room.take(std::vector<float>(kQueries * kHead));
  INTERNEVO_RETURN_IF_ERROR(room.status);
  INTERNEVO_RETURN_IF_ERROR(mapOf(keys, kHead, kKeys, 1, 1, kKeys, &kernel.keys));
  INTERNEVO_RETURN_IF_ERROR(mapOf(queries, kHead, kQueries, 1, 1, kQueries, &kernel.queries));
  INTERNEVO_RETURN_IF_ERROR(start(kernel, "attention products"));
  room.read("keys by keys", kernel.square, 64 * kKeys, kKeys, output);
  room.read("weighted keys", kernel.weighted, 64 * kHead, kHead, output);
  room.read("scores", kernel.scores, kKeys * kQueries, kQueries, output);
  room.read("gradient of keys", kernel.gKeys, kKeys * kHead, kHead, output);
  room.read("gradient of queries", kernel.gQueries, kQueries * kHead, kHead, output);
  return room.status;
}

Status boxes(unsigned seed, Output* output) {
  Room room;
  const auto* const data = room.take(smallIntegers(2 * 13 * 3 * 64, seed));  // [batch, rows, heads, 64]
  for (const int row : {0, 8, -3}) {
    std::uint16_t* const result = room.take(std::vector<std::uint16_t>(512));
    INTERNEVO_RETURN_IF_ERROR(room.status);
    Box kernel{{}, row, 2, 1, result};
    INTERNEVO_RETURN_IF_ERROR(mapOf(data, 64, 13, 3, 2, 8, &kernel.map));
    INTERNEVO_RETURN_IF_ERROR(start(kernel, "box"));
    room.read("box", result, 512, 64, output);
  }
  return room.status;
}

/// Each block adds its 256 numbers to the sum when those before it have, as the gradient of the queries is summed.
struct OrderedSums {
  static constexpr int kThreads = 128, kWarpgroups = 1, kBarrierAt = 1024, kSharedBytes = kBarrierAt + 64;
  const float* source;  ///< [blocks, 256]
  float* sums;          ///< [256]
  float* copies;        ///< [blocks, 256]
  std::int32_t* flag;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    auto* const barrier = reinterpret_cast<MemoryBarrier*>(t.shared() + kBarrierAt);
    const auto block = static_cast<std::int32_t>(t.blockX());
    if (t.x() == 0) t.initBarrier(barrier, 1), t.publishBarriers();
    t.sync();
    if (t.x() == 0) {
      t.arriveExpecting(barrier, 1024);
      t.copyBulk(t.shared(), source + 256 * block, 1024, barrier);
    }
    t.wait(barrier, 0);
    t.sync();
    if (t.x() != 0) return;
    t.storeBulk(copies + 256 * block, t.shared(), 1024);
    t.commitBulk();
    while (t.loadAcquire(flag) < block) {
    }
    t.fenceProxy();
    t.reduceAddBulk(sums, t.shared(), 1024);
    t.commitBulk();
    t.waitBulk();
    t.addRelease(flag, 1);
  }
};

Status bulk(unsigned seed, Output* output) {
  constexpr std::int64_t kBlocks = 8;
  // Of very different sizes, so that another order of the sums shows.
  std::vector<float> values = smallFloats(256 * kBlocks, seed);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::ldexp(values[i] + 0.37f, static_cast<int>(i / 256 * 5 % 24));
  Room room;
  const float* const source = room.take(values);
  float* const sums = room.take(std::vector<float>(256));
  float* const copied = room.take(std::vector<float>(256 * kBlocks));
  std::int32_t* const flag = room.take(std::vector<std::int32_t>(4));
  INTERNEVO_RETURN_IF_ERROR(room.status);
  INTERNEVO_RETURN_IF_ERROR(start(OrderedSums{source, sums, copied, flag}, "bulk", kBlocks));
  room.read("sums", sums, 256, 256, output);
  room.read("copies", copied, 256 * kBlocks, 256, output);
  return room.status;
}

/// One warpgroup gives registers away and copies; two take them and multiply what it copied, in two phases of one barrier.
struct Handover {
  static constexpr int kThreads = 3 * kWarpgroup, kWarpgroups = 3, kFullAt = 8192, kFreeAt = 8200,
                       kSharedBytes = 8192 + 64;
  static constexpr int kRounds = 4;
  TensorMap map;  ///< box [64, 64] of [64 · kRounds, 64]
  float* d;       ///< [2, 64, 64]

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    auto* const full = reinterpret_cast<MemoryBarrier*>(t.shared() + kFullAt);
    auto* const free = reinterpret_cast<MemoryBarrier*>(t.shared() + kFreeAt);
    if (t.x() == 0) t.initBarrier(full, 1), t.initBarrier(free, 2), t.publishBarriers();
    t.sync();
    if (t.x() < kWarpgroup) {
      t.template releaseRegisters<24>();
      if (t.x() == 0) {
        for (int round = 0; round < kRounds; ++round) {
          if (round > 0) t.wait(free, (round - 1) & 1);
          t.arriveExpecting(full, 8192);
          t.copyTile(t.shared(), &map, full, 0, 64 * round, 0, 0);
        }
      }
    } else {
      t.template takeRegisters<240>();
      multiply(t, full, free);
    }
  }
  template <class Thread>
  INTERNEVO_DEVICE void multiply(Thread& t, MemoryBarrier* full, MemoryBarrier* free) const {
    const int group = t.x() / kWarpgroup - 1;
    const BulkTile<64, 64> tile{t.sharedAddress(t.shared())};
    float sums[8][4] = {};
    for (int round = 0; round < kRounds; ++round) {
      t.wait(full, round & 1);
      // Both take turns, as the scores of two halves do.
      t.syncNamed(1, 2 * kWarpgroup);
      t.fenceProducts();
#pragma unroll
      for (int step = 0; step < 4; ++step)
        t.template multiplyShared<false, true>(sums, tile.byRows(0, step), tile.byColumns(0, step), true);
      t.commitProducts();
      t.template waitProducts<0>();
      t.settle(sums);
      t.syncNamed(2 + group, kWarpgroup);
      if (t.x() % kWarpgroup == 0) t.arrive(free);
    }
    for (int n = 0; n < 8; ++n) {
      for (int j = 0; j < 4; ++j) {
        const int row = 16 * (t.x() % kWarpgroup / 32) + t.x() % 32 / 4 + j / 2 * 8,
                  column = 8 * n + t.x() % 4 * 2 + j % 2;
        d[(group * 64 + row) * 64 + column] = sums[n][j];
      }
    }
  }
};

Status handover(unsigned seed, Output* output) {
  Room room;
  const auto* const data = room.take(smallIntegers(64 * 64 * Handover::kRounds, seed));
  float* const d = room.take(std::vector<float>(2 * 64 * 64));
  INTERNEVO_RETURN_IF_ERROR(room.status);
  Handover kernel{{}, d};
  INTERNEVO_RETURN_IF_ERROR(mapOf(data, 64, 64 * Handover::kRounds, 1, 1, 64, &kernel.map));
  INTERNEVO_RETURN_IF_ERROR(start(kernel, "handover"));
  room.read("product of each warpgroup", d, 2 * 64 * 64, 64, output);
  return room.status;
}

/// What ends a process, or a context, of the device.
struct Trap {
  static constexpr int kThreads = 32, kSharedBytes = 0;
  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread&) const {
#ifdef __CUDA_ARCH__
    asm volatile("trap;");
#elif !defined(__CUDACC__)
    __builtin_trap();
#endif
  }
};
struct Endless {
  static constexpr int kThreads = 32, kSharedBytes = 0;
  volatile std::int32_t* word;  ///< stays 0
  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread&) const {
    while (*word == 0) {
    }
  }
};

Status fault(const std::string& name, Output* output) {
  Room room;
  std::int32_t* const word = room.take(std::vector<std::int32_t>(1));
  INTERNEVO_RETURN_IF_ERROR(room.status);
  INTERNEVO_RETURN_IF_ERROR(name == "trap" ? start(Trap{}, "trap") : start(Endless{word}, "endless"));
  room.read("word", word, 1, 1, output);
  return room.status;
}

/// Instructions of sm_90a, which other GPUs have not: there their kernels are empty.
Status needed(const std::string& name) {
#ifdef INTERNEVO_CUDA_DEVICE
  for (const KernelCaseName& each : kKernelCases) {
    if (each.name != name || !each.warpgroups) continue;
    int device = 0;
    cudaDeviceProp properties{};
    INTERNEVO_RETURN_IF_ERROR(cudaStatus(cudaGetDevice(&device), "cudaGetDevice"));
    INTERNEVO_RETURN_IF_ERROR(
        cudaStatus(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties"));
    if (properties.major == 9 && properties.minor == 0) continue;
    return {StatusCode::planUnsupported, std::string(properties.name) + " has no instructions of sm_90a"};
  }
#else
  static_cast<void>(name);
#endif
  return Status::success();
}

Status run(const std::string& name, unsigned seed, Output* output) {
  INTERNEVO_RETURN_IF_ERROR(needed(name));
  if (name == "mma") return fragments(seed, output);
  if (name == "cp-async") return copies(seed, output);
  if (name == "cvt") return rounding(seed, output);
  if (name == "shuffle") return exchange(seed, output);
  if (name == "wgmma-rows") return products(Multiply::byRows, seed, output);
  if (name == "wgmma-columns") return products(Multiply::byColumns, seed, output);
  if (name == "wgmma-registers") return products(Multiply::fromRegisters, seed, output);
  if (name == "wgmma-transposed") return products(Multiply::transposedLeft, seed, output);
  if (name == "wgmma-inside-atom") return products(Multiply::insideAtom, seed, output);
  if (name == "wgmma-heads-64") return attentionProducts<64>(seed, output);
  if (name == "wgmma-heads-128") return attentionProducts<128>(seed, output);
  if (name == "tensor-copy") return boxes(seed, output);
  if (name == "bulk") return bulk(seed, output);
  if (name == "handover") return handover(seed, output);
  if (name == "trap" || name == "endless") return fault(name, output);
  return {StatusCode::badConfig, "no kernel case is named " + name};
}

}  // namespace

}  // namespace internevo::cuda

extern "C" __attribute__((visibility("default"))) int internevo_kernel_case_2(
    internevo::cuda::KernelCase* call) {
  internevo::cuda::Output output;
  const internevo::Status status = internevo::cuda::run(call->name, call->seed, &output);
  std::string message = status.message();
  call->writtenBytes = static_cast<std::int64_t>(output.bytes.size());
  if (status.ok() && (call->writtenBytes > call->outputBytes || output.layout.size() >= sizeof call->layout))
    message = "no room for " + std::to_string(output.bytes.size()) + " bytes";
  if (message.empty()) {
    std::memcpy(call->output, output.bytes.data(), output.bytes.size());
    std::memcpy(call->layout, output.layout.c_str(), output.layout.size() + 1);
    return 0;
  }
  const std::size_t length = std::min(message.size(), sizeof call->message - 1);
  std::memcpy(call->message, message.data(), length), call->message[length] = '\0';
  return status.code() == internevo::StatusCode::planUnsupported ? 2 : 1;
}
