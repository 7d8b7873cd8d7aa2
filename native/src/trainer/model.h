// Forward and backward of the layers that a rank holds, on its rows of a micro-batch.
//
// With tensor parallelism (Megatron's, with sequence-parallel norms) the residual stream and the norms are on own
// tokens; before the products of a block the tokens of the whole sequence are gathered over the tensor ranks, and the
// partial sums of its last product are reduce-scattered back to own tokens. What forward gathered, backward gathers
// again instead of keeping it. Where the backward pass overlaps, that gather goes on beside the product of the input's
// gradient, and the reduce-scatter of this beside the product of the weight's. Partial sums travel in the activation type, as every activation does: a bfloat16 partial
// errs by half a unit of its last place like the sum itself, and float32 would double the volume.
#pragma once

#include <memory>
#include <optional>

#include "comm/ring_attention.h"
#include "internevo/arena.h"
#include "internevo/backend.h"
#include "trainer/batch_reader.h"
#include "trainer/communication_lane.h"
#include "trainer/groups.h"
#include "trainer/layer_offload.h"
#include "trainer/memory_plan.h"
#include "trainer/parameter_store.h"
#include "trainer/pipeline_link.h"

namespace internevo::trainer {

/// Views of a layer's values, by their names in its program. What a plan does not keep is in the workspace of all layers.
struct LayerViews {
  View qkv, headGains, attentionHeads, attentionTokens, logSumExp, middle, gateUp;
};
struct WorkspaceViews {
  View norm, hidden, hiddenGradient, inverseRms, mlp, mlpGradient, qkvGradient, qkvTokens, queryKey,
      headInverseRms, attentionGradientTokens, attentionGradientHeads;
};

/// A layer as its program has it: where its operators' parameters are (of tensors that make one matrix, the first), and the
/// operators that timelines name.
struct LayerPlaces {
  TensorPlace attentionNorm, queryKeyValue, attentionOutput, mlpNorm, gateUp, down;
  TensorPlace projectionBias, headGains;  ///< where the model has them
  struct {
    const ProgramOperator *queryKeyValue, *attention, *attentionOutput, *gateUp, *down;
  } operators;
};

/// Errors of every call: Failure of the operator or collective that failed.
class Model {
 public:
  Model(const Config& config, const Layout& layout, const MemoryPlan& plan, Arena& arena, Backend& backend,
        GroupSet& groups, ParameterStore& parameters);

  /// To be filled with the operation's micro-batch by the caller before an operation that needsData().
  const BatchViews& batch() const { return batch_; }
  bool needsData(const PipelineOperation& operation) const {
    const bool tokens = layout_.hasEmbedding() && operation.chunk == 0;
    const bool targets = operation.pass == Pass::backward && endsAtHead(operation);
    return tokens || targets || config_.packsDocuments();
  }

  /// Lets the backend choose how it computes attention, while nothing is kept in a layer's memory. Collective over the world.
  void prepareAttention(const LargestOfRanks& largest);
  /// What this stage does in a step, in order.
  const std::vector<PipelineOperation>& operations() const { return operations_; }
  void beginStep() { link_.begin(), offload_.beginStep(); }
  /// One micro-batch through one chunk. The backward pass adds the rows' losses to *lossSum where the head is, and the
  /// gradients of (sum of losses · gradientScale) to the parameter store.
  void run(const PipelineOperation& operation, float gradientScale, ExactSum* lossSum);
  void endStep() { link_.finish(); }

  /// What this stage does with a batch that is evaluated: forward passes, in a step's order.
  const std::vector<PipelineOperation>& evaluationOperations() const { return evaluationOperations_; }
  bool evaluationNeedsData(const PipelineOperation& operation) const {
    return (layout_.hasEmbedding() && operation.chunk == 0) || endsAtHead(operation) ||
           config_.packsDocuments();
  }
  /// endStep() ends it too.
  void beginEvaluation() { link_.begin(true); }
  /// Adds the rows' losses to *lossSum where the head is. Nothing is kept for a backward pass, and no gradient is made.
  void evaluate(const PipelineOperation& operation, ExactSum* lossSum);
  /// Seconds that the ring and tensor ranks have communicated beside the computing thread, since the beginning.
  double hiddenBusySeconds() const {
    return (ringLane_ ? ringLane_->busySeconds() : 0) + tensorLane_.busySeconds();
  }

 private:
  /// A chunk's activations of one micro-batch.
  struct Slot {
    std::vector<View> inputs;
    std::vector<int> layerSets;
    View output;
  };
  Slot& slotOf(const PipelineOperation& operation);
  bool endsAtHead(const PipelineOperation& operation) const {
    return layout_.hasHead() && operation.chunk + 1 == config_.plan.pipelineChunks;
  }
  /// `trains`: a backward pass follows, for which values may go to the host's memory.
  void forward(const PipelineOperation& operation, bool trains);
  void backward(const PipelineOperation& operation, float gradientScale, ExactSum* lossSum);

  // model_layer.cpp
  /// input [rows, H] -> saved activations and, unless `onlySaved`, output [rows, H]. With `onlySaved` the units that were
  /// taken are not given back: the backward pass goes on with them.
  void forwardLayer(std::int64_t layer, const LayerViews& saved, View input, View output, bool onlySaved);
  /// workspace.norm -> the products of gate and up.
  void gateAndUp(const LayerPlaces& at, const LayerViews& saved, ConstView unit);
  void attentionForward(const LayerPlaces& at, const LayerViews& saved);
  /// q and k before their norm, in saved.qkv -> normed and turned, in workspace.queryKey.
  void normaliseHeads(const LayerViews& saved);
  /// Gradient of what that made -> of q and k before their norm, in place; adds to the gradient of the gains.
  void normaliseHeadsBackward(const LayerViews& saved, View gQueryKey, View gGains);
  void attend(const LayerViews& saved);
  /// gO: gradient of attentionHeads -> workspace.qkvGradient.
  void attendBackward(const LayerViews& saved, ConstView gO);
  /// workspace.hiddenGradient: gradient of the layer's output -> of its input.
  void backwardLayer(std::int64_t layer, const LayerViews& saved, View input);
  void mlpBackward(std::int64_t layer, const LayerViews& saved);
  void attentionBackward(std::int64_t layer, const LayerViews& saved, ConstView input);
  /// The gradients of a product that reads workspace.norm of the whole sequence: of its weights, added to gradient, and of its
  /// input, partial sums that finishInputGradient makes workspace.hidden of.
  void gatheredBackward(const LinearShape& shape, int unit, ConstView gOutput, ConstView weights,
                        View gradient);
  void finishInputGradient(int unit);

  // model_ends.cpp
  EmbeddingShape embeddingShape() const;
  void embed(View output);
  void embedBackward();
  /// Loss and gradient of one micro-batch from the last layer's output; the gradient goes to workspace.hiddenGradient.
  void head(View input, float gradientScale, ExactSum* lossSum);
  /// Its loss alone.
  void evaluateHead(View input, ExactSum* lossSum);
  /// workspace.norm of the head's input.
  void normHeadInput(View input, ConstView unit);
  /// From that: the loss and, unless `gradient` is empty, its gradients, that of the input in workspace.hidden.
  void headLoss(ConstView unit, View gradient, float gradientScale, ExactSum* lossSum);
  void headLossOfSlices(ConstView unit, View gradient, float gradientScale, ExactSum* lossSum);

  // model_moves.cpp
  /// Rotary positions on q and k of own tokens [blockRows, queryWidth + 2·kvWidth], or inside attention [headRows,
  /// headQkvWidth].
  void rotate(View qkv, bool insideAttention, bool backward);
  /// What attention reads its queries and keys from.
  View queryKeyOf(const LayerViews& saved) const {
    return config_.model.queryKeyNorm ? workspace_.queryKey : saved.qkv;
  }
  /// Moves q, k and v between own tokens (all heads) and own heads (all tokens).
  void exchangeQkv(View tokensSide, View headsSide, bool toHeads);
  void exchange(std::int64_t heads, ConstView source, std::int64_t sequenceStride, View target,
                std::int64_t headStride, bool toHeads);
  /// What a block's products read: own tokens [rows, H], or with tensor parallelism the whole sequences [b·S, H] gathered
  /// into the one block buffer.
  ConstView blockInput(ConstView own);
  /// Where a block's last product [blockRows, H] is to be written: `own`, or the block buffer.
  View blockOutput(View own) const { return block_.empty() ? own : block_; }
  /// With tensor parallelism: sums the block buffer over the tensor ranks into own tokens.
  void finishBlock(View own);
  Status gatherBlock(ConstView own);
  Status scatterBlock(ConstView block, View own);
  /// A job of the lane of tensor ranks, in the backward pass: gathers workspace.norm into the block buffer, or scatters the
  /// gradient of that, from a buffer of its own, to workspace.hidden.
  struct TensorJob {
    Model* model;
    bool scatters;
    std::int32_t unit;
    Status operator()() const { return model->moveBeside(scatters, unit); }
  };
  Status moveBeside(bool scatters, int unit);
  Lane::Ticket submitBeside(bool scatters, int unit);

  /// The computing thread is in an operation as long as the result lives; messages between stages get on before it begins.
  Activity::Scope computing(const char* name, int unit = -1) {
    link_.advance();
    return {*groups_.activity, ActivityLane::compute, name, unit, groups_.microBatch};
  }
  bool isRecomputed(std::int64_t layer) const { return layout_.placeInStage(layer) < recomputed_; }
  const LayerPlaces& placesOf(std::int64_t layer) const {
    return layerPlaces_[static_cast<std::size_t>(layout_.placeInStage(layer))];
  }
  Activity::Scope computing(const ProgramOperator* one, Pass pass, int unit) {
    return computing((pass == Pass::forward ? one->forwardLabel : one->backwardLabel).c_str(), unit);
  }
  /// The passes of layers of a step, in order.
  std::vector<LayerTurn> layerTurns() const;
  /// The values of a layer set for its next turn: what waits in the host's memory is in one of two places. Evaluation takes no turn:
  /// between two steps nothing is copied to or from either place.
  LayerViews beginTurn(int layerSet, bool trains = true);
  LinearShape linear(std::int64_t inputs, std::int64_t outputs) const;
  AttentionShape attentionShape() const;
  BiasShape projectionBias() const { return {shape_.blockRows, shape_.queryWidth + 2 * shape_.kvWidth, 0}; }
  HeadNormShape headNorm(std::int64_t heads) const {
    return {shape_.headRows(), heads, shape_.headSize, shape_.headQkvWidth(), shape_.headQkvWidth()};
  }
  Workspace matrixScratch() const { return headWorkspace_; }
  /// Calls the ring and counts the time in which it communicated.
  template <typename Call>
  void communicatingAround(const Call& call);

  const Config& config_;
  const Layout& layout_;
  const LocalShape shape_;
  const bool ulysses_;
  const std::int64_t
      recomputed_;  ///< layers of this stage, the first, that are computed again in the backward pass
  Backend& backend_;
  GroupSet& groups_;
  ParameterStore& parameters_;
  const std::vector<PipelineOperation> operations_, evaluationOperations_;
  PipelineLink link_;
  std::vector<std::vector<Slot>> slots_;  ///< [chunk][micro-batch mod size]
  std::vector<LayerViews> layers_;
  LayerOffload offload_;
  std::array<View, 2> gateUpPlaces_;      ///< where they wait in the host's memory
  std::vector<LayerPlaces> layerPlaces_;  ///< by place in the stage
  WorkspaceViews workspace_;
  View cosines_, sines_, block_, gradientBlock_, headStatistics_;
  BatchViews batch_;
  Workspace attentionWorkspace_, headWorkspace_, allToAllStaging_, reduceWorkspace_;
  std::optional<RingAttention> ring_;  ///< with context parallelism
  std::unique_ptr<Lane> ringLane_;     ///< where the plan overlaps; ends first: its jobs use the ring
  CommunicationLane
      tensorLane_;  ///< of tensor ranks, where the backward pass overlaps; between its jobs no other uses them
  Lane::Ticket scattered_ = 0;  ///< of the gradient of an input that is on its way
};

}  // namespace internevo::trainer
