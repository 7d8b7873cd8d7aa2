// Forward and backward of the decoder on one rank: its rows of a micro-batch, layer by layer.
#pragma once

#include "internevo/arena.h"
#include "internevo/backend.h"
#include "trainer/groups.h"
#include "trainer/memory_plan.h"
#include "trainer/parameter_store.h"

namespace internevo::trainer {

/// Views of LayerPieces and WorkspacePieces.
struct LayerViews {
  View qkv, attentionHeads, attentionTokens, logSumExp, middle, gateUp;
};
struct WorkspaceViews {
  View norm, hidden, hiddenGradient, inverseRms, mlp, mlpGradient, qkvGradient, qkvTokens, attentionGradientHeads;
};

/// Errors of every call: Failure of the operator or collective that failed.
class Model {
 public:
  Model(const Config& config, const Layout& layout, const MemoryPlan& plan, Arena& arena, Backend& backend,
        GroupSet& groups, ParameterStore& parameters);

  /// This rank's tokens of the next micro-batch, int32 [rows], to be filled by the caller.
  std::int32_t* tokens() { return tokens_.as<std::int32_t>(); }
  std::int32_t* targets() { return targets_.as<std::int32_t>(); }

  /// Forward and backward of the micro-batch in tokens() and targets(): adds the rows' losses to *lossSum and the
  /// gradients of (sum of losses · gradientScale) to the parameter store.
  void forwardBackward(float gradientScale, ExactSum* lossSum);

 private:
  void embed();
  /// layerInputs[layer] -> saved activations and, unless `onlySaved`, layerInputs[layer + 1].
  void forwardLayer(std::int64_t layer, bool onlySaved, ConstView unit);
  void attentionForward(const LayerViews& saved);
  void headForwardBackward(float gradientScale, ExactSum* lossSum);
  /// workspace.hiddenGradient: gradient of the layer's output -> of its input.
  void backwardLayer(std::int64_t layer);
  void mlpBackward(const LayerViews& saved, ConstView unit, View gradient);
  void attentionBackward(const LayerViews& saved, ConstView input, ConstView unit, View gradient);
  void embedBackward();

  void rotate(View qkv, bool backward);
  /// Moves q, k and v between own tokens (all heads) and own heads (all tokens).
  void exchangeQkv(View tokensSide, View headsSide, bool toHeads);
  void exchange(std::int64_t heads, ConstView source, std::int64_t sequenceStride, View target,
                std::int64_t headStride, bool toHeads);
  const LayerViews& savedOf(std::int64_t layer) const {
    return layers_[config_.plan.recompute ? 0 : static_cast<std::size_t>(layer)];
  }
  LinearShape linear(std::int64_t inputs, std::int64_t outputs) const;
  AttentionShape attentionShape() const;
  Workspace matrixScratch() const { return headWorkspace_; }

  const Config& config_;
  const Layout& layout_;
  const LocalShape shape_;
  const bool split_;  ///< sequence parallelism is in use
  Backend& backend_;
  GroupSet& groups_;
  ParameterStore& parameters_;
  std::vector<View> layerInputs_;
  std::vector<LayerViews> layers_;
  WorkspaceViews workspace_;
  View cosines_, sines_, tokens_, targets_;
  Workspace attentionWorkspace_, headWorkspace_, allToAllStaging_;
};

}  // namespace internevo::trainer
