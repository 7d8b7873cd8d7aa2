// The CUDA implementation of Backend. In the library for GPUs it starts kernels on one, else on the model of one (queue.h,
// launch.h). What differs between the two, memory and matrix products, is given to it.
#pragma once

#include <array>
#include <map>
#include <memory>

#include "backend/cuda/allocation.h"
#include "backend/cuda/attention_choice.h"
#include "backend/cuda/attention_library.h"
#include "backend/cuda/matrix_products.h"
#include "backend/cuda/nccl/communication.h"
#include "backend/cuda/portable.h"
#include "backend/cuda/sizes.h"
#include "backend/cuda/stream_copies.h"
#include "backend/cuda/stream_host_copies.h"
#include "backend/cuda/streams.h"
#include "internevo/backend.h"

namespace internevo::cuda {

/// What the backend stands on.
struct Device {
  std::unique_ptr<Streams> streams;  ///< goes last
  std::string name;
  std::unique_ptr<Current> current;
  std::unique_ptr<Allocation> allocation;
  std::unique_ptr<PinnedMemory> pinned;
  std::unique_ptr<MemorySpace> memory;
  std::unique_ptr<MatrixProducts> products;
  std::vector<LibraryVersion> libraries;  ///< but NCCL
  bool deterministic = true;
  int multiprocessors = 0;
  int warpgroupBlocks = 0;  ///< multiprocessors for attention's kernels of sm_90a; 0: those of sm_80 serve
  AttentionChoice attentionChoice = AttentionChoice::best;
  std::unique_ptr<AttentionLibrary> attentionLibrary;  ///< or null
  std::string noAttentionLibrary;                      ///< why there is none
};

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(Device device)
      : device_(std::move(device)),
        communication_({*device_.streams, *device_.current, *device_.memory, *device_.allocation,
                        device_.deterministic}) {}
  ~CudaBackend() override;

  /// To be called once. Errors: outOfMemory.
  Status start();

  std::string name() const override { return device_.name; }
  std::vector<LibraryVersion> libraries() override;
  int threads() const override { return 1; }
  MemorySpace& memory() override { return *device_.memory; }
  /// Errors also: dataError when a token, target or position was outside of what it may be.
  Status settle() override;
  std::unique_ptr<Lane> createLane() override;
  DeviceGroups* groups() override { return &communication_; }
  std::unique_ptr<Stopwatch> createStopwatch() override;
  std::unique_ptr<Moments> createMoments(std::int64_t capacity) override;
  std::unique_ptr<BackgroundCopies> createBackgroundCopies() override;
  std::unique_ptr<HostCopies> createHostCopies() override;

  std::int64_t linearWorkspaceBytes() const override { return sizes_.linearWorkspaceBytes(); }
  std::int64_t normWorkspaceBytes(const NormShape& s) const override { return sizes_.normWorkspaceBytes(s); }
  std::int64_t lossChunkRows() const override { return sizes_.lossChunkRows(); }
  std::int64_t attentionWorkspaceBytes(const AttentionShape& s) const override {
    return sizes_.attentionWorkspaceBytes(s);
  }
  std::int64_t attentionBlockWorkspaceBytes(const AttentionBlockShape& s) const override {
    return sizes_.attentionBlockWorkspaceBytes(s);
  }
  std::int64_t headLossWorkspaceBytes(const HeadLossShape& s) const override {
    return sizes_.headLossWorkspaceBytes(s);
  }

  Status initialNormal(const InitialShape&, std::uint64_t key, double standardDeviation,
                       View target) override;

  Status linearForward(const LinearShape&, ConstView x, ConstView w, View y, Workspace) override;
  Status linearGradInput(const LinearShape&, ConstView gY, ConstView w, View gX, bool accumulate,
                         Workspace) override;
  Status linearGradWeight(const LinearShape&, ConstView x, ConstView gY, View gW, Workspace) override;
  void shareWithCommunication(bool shares) override;
  Status chooseProducts(const ProductRequest&, const LargestOfRanks&, ProductChoices*) override;
  Status biasAdd(const BiasShape&, ConstView bias, View y) override;
  Status biasGradient(const BiasShape&, ConstView gY, View gBias, Workspace) override;

  Status rmsNormForward(const NormShape&, ConstView x, ConstView residual, ConstView gain, float epsilon,
                        View sum, View y, View inverseRms) override;
  Status rmsNormBackward(const NormShape&, ConstView h, ConstView gain, ConstView inverseRms, ConstView gY,
                         ConstView gSum, View gH, View gGain, Workspace) override;
  Status headNormForward(const HeadNormShape&, ConstView x, ConstView gain, float epsilon, View y,
                         View inverseRms) override;
  Status headNormBackward(const HeadNormShape&, ConstView x, ConstView gain, ConstView inverseRms,
                          ConstView gY, View gX, View gGain, Workspace) override;
  Status add(std::int64_t elements, ConstView a, ConstView b, View y) override;

  using Backend::ropeTable;
  Status ropeTable(std::int64_t positions, const RopeFrequencies&, View cosines, View sines) override;
  Status ropeForward(const RopeShape&, ConstView cosines, ConstView sines, View x) override;
  Status ropeBackward(const RopeShape&, ConstView cosines, ConstView sines, View gX) override;

  Status attentionForward(const AttentionShape&, ConstView q, ConstView k, ConstView v, View o,
                          View logSumExp, Workspace) override;
  Status attentionBackward(const AttentionShape&, ConstView q, ConstView k, ConstView v, ConstView o,
                           ConstView logSumExp, ConstView gO, View gQ, View gK, View gV, Workspace) override;
  Status prepareAttention(const AttentionShape&, const AttentionOperands&, const LargestOfRanks&) override;
  Status attentionBlockForward(const AttentionBlockShape&, ConstView q, ConstView k, ConstView v, bool merge,
                               View o, View logSumExp, Workspace) override;
  Status attentionBlockBackward(const AttentionBlockShape&, ConstView q, ConstView k, ConstView v,
                                ConstView o, ConstView logSumExp, ConstView gO, View gQ, View gK, View gV,
                                Workspace) override;

  Status swigluForward(const SwigluShape&, ConstView gate, ConstView up, View y) override;
  Status swigluBackward(const SwigluShape&, ConstView gate, ConstView up, ConstView gY, View gGate,
                        View gUp) override;

  Status embeddingForward(const EmbeddingShape&, ConstView tokens, ConstView table, View y) override;
  Status embeddingBackward(const EmbeddingShape&, ConstView tokens, ConstView gY, View gTable) override;

  Status headLoss(const HeadLossShape&, ConstView x, ConstView w, ConstView targets, float gradientScale,
                  ExactSum* lossSum, View gX, View gW, Workspace) override;
  Status headSliceForward(const HeadSliceShape&, ConstView x, ConstView w, ConstView targets, View logits,
                          View statistics, Workspace) override;
  Status headSliceBackward(const HeadSliceShape&, int slices, int own, ConstView x, ConstView w,
                           ConstView targets, ConstView statistics, float gradientScale, ExactSum* lossSum,
                           View logits, View gX, View gW, Workspace) override;

  Status adamw(std::int64_t elements, const AdamwSettings&, View parameters, View master, ConstView gradient,
               View firstMoment, View secondMoment) override;
  Status squaredNorm(std::int64_t elements, ConstView x, ExactSum* sum) override;
  Status accumulate(std::int64_t elements, ConstView source, View target) override;
  Status convert(std::int64_t elements, ConstView source, View target) override;
  Status convertRows(std::int64_t rows, std::int64_t width, ConstView source, std::int64_t sourceStride,
                     View target, std::int64_t targetStride) override;

 private:
  static constexpr int kSums = 16;
  static constexpr int kTableWords =
      kSums * ExactSum::kWords + 1;  // sums that are under way, and the count of errors

  const Queue& queue() const { return device_.current->queue; }
  Status multiply(const MatrixProduct& product, Workspace workspace) {
    return device_.products->multiply(queue(), product, workspace);
  }
  /// The device's words of a sum of the caller's. Errors: internal when more are under way than there is room for.
  Status sumOf(ExactSum* sum, std::int64_t** words);
  std::int64_t* errors() const { return table_ + kSums * ExactSum::kWords; }
  Status rotate(const char* call, RopeShape s, ConstView cosines, ConstView sines, View x, float direction);

  // ---- attention by a library (backend_attention_library.cpp) -------------------------------------------------------------
  /// Says whether the library computes the pass, which is then ready. Errors: badConfig when it is asked for and can't.
  Status servedByLibrary(const AttentionProblem&, AttentionPass, Workspace, bool* served);
  Status ownForward(const AttentionArguments&, const LibraryAttention&);
  Status ownBackward(const AttentionArguments&, const LibraryAttention&);
  /// Tries both passes; what the library is not to be taken for is in `refusals` [pass].
  Status tryLibrary(const AttentionArguments&, const LibraryAttention&, AttentionTimes*,
                    std::array<std::string, 2>* refusals);
  void tellAttention(const AttentionProblem&, const AttentionTimes& slowest,
                     const std::array<std::string, 2>& refusals) const;

  Status gradientsOfHead(std::int64_t rows, std::int64_t width, std::int64_t vocabulary, ConstView x,
                         ConstView w, const float* logits, View gX, View gW, Workspace workspace);

  /// Attention's own kernels of sm_90a stay on their multiprocessors for a whole call.
  int warpgroupBlocks() const;

  Device device_;
  bool shares_ = false;  ///< with communication
  NcclCommunication communication_;
  const Sizes sizes_;
  std::int64_t* table_ = nullptr;
  std::array<ExactSum*, kSums> sums_{};
  int sumsUnderWay_ = 0;
  std::map<AttentionProblem, AttentionServed> served_;  ///< as all ranks agreed
  std::map<AttentionProblem, AttentionServed> ready_;   ///< asked for, and prepared
};

/// Half of the numbers: no grid has as many threads as the other half.
constexpr std::int64_t kLargestIn32Bits = std::int64_t{1} << 31;

/// Calls body(T{}) with T = float or Bfloat16.
template <typename Body>
Status withElementType(DataType type, const Body& body) {
  return type == DataType::float32 ? body(float{}) : body(Bfloat16{});
}

/// Calls body(Index{}) with an unsigned type of 32 bits where `pieces`, and what a grid's stride adds, can be counted in it.
template <typename Body>
Status withIndex(std::int64_t pieces, const Body& body) {
  return pieces < kLargestIn32Bits ? body(std::uint32_t{}) : body(std::int64_t{});
}

/// Calls body(std::integral_constant<int, N>) with N = 8 where every size is a multiple of 8 and every pointer of 16 bytes,
/// else with 1.
template <typename Body>
Status withPieces(std::initializer_list<std::int64_t> sizes, std::initializer_list<const void*> pointers,
                  const Body& body) {
  bool wide = true;
  for (const std::int64_t size : sizes) wide = wide && size % 8 == 0;
  for (const void* pointer : pointers) wide = wide && reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
  return wide ? body(std::integral_constant<int, 8>{}) : body(std::integral_constant<int, 1>{});
}

}  // namespace internevo::cuda
