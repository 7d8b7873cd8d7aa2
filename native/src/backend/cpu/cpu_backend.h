// The CPU implementation of Backend; each operator has its own source file.
#pragma once

#include "executor_sizes/executor_sizes.h"
#include "internevo/backend.h"

namespace internevo::cpu {

/// A chunk of the loss is whole blocks of the sum of the head's gradient.
static_assert(sizes::lossChunkRows % kSumBlockRows == 0);

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(int threads) : threads_(threads < 1 ? 1 : threads) {}

  std::string name() const override;
  int threads() const override { return threads_; }
  MemorySpace& memory() override { return hostMemory(); }
  Status settle() override { return Status::success(); }
  std::unique_ptr<Lane> createLane() override { return std::make_unique<ThreadLane>(); }

  std::int64_t linearWorkspaceBytes() const override;
  Status linearForward(const LinearShape&, ConstView x, ConstView w, View y, Workspace) override;
  Status linearGradInput(const LinearShape&, ConstView gY, ConstView w, View gX, bool accumulate,
                         Workspace) override;
  Status linearGradWeight(const LinearShape&, ConstView x, ConstView gY, View gW, Workspace) override;
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

  Status initialNormal(const InitialShape&, std::uint64_t key, double standardDeviation,
                       View target) override;

  std::int64_t normWorkspaceBytes(const NormShape&) const override { return 0; }
  std::int64_t lossChunkRows() const override { return sizes::lossChunkRows; }
  std::int64_t attentionWorkspaceBytes(const AttentionShape&) const override;
  Status attentionForward(const AttentionShape&, ConstView q, ConstView k, ConstView v, View o,
                          View logSumExp, Workspace) override;
  Status attentionBackward(const AttentionShape&, ConstView q, ConstView k, ConstView v, ConstView o,
                           ConstView logSumExp, ConstView gO, View gQ, View gK, View gV, Workspace) override;
  std::int64_t attentionBlockWorkspaceBytes(const AttentionBlockShape&) const override;
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

  std::int64_t headLossWorkspaceBytes(const HeadLossShape&) const override;
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
  int threads_;
};

}  // namespace internevo::cpu
