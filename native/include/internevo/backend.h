// The operators of the decoder, forward and backward. One implementation per kind of device.
//
// Conventions
// - Matrices are row-major. "rows" are tokens (batch · sequence). `stride` is the distance in elements between
//   consecutive rows, so that views into a fused buffer (q|k|v, gate|up) need no copy.
// - Storage is float32 or bfloat16; all arithmetic and every sum is float32 or wider, rounded once on store.
// - Parameter gradients are float32 or bfloat16 and are always accumulated (+=). What a call adds to them is summed in float32; with
//   bfloat16 the new value is rounded once a call (headLoss: once a chunk of rows). Gradients of inputs are overwritten unless the
//   arguments say `accumulate`.
// - Every result is a function of the arguments only: independent of the number of threads, and, where the
//   mathematics is per row, of the number of rows in the call and of the row's place in it.
// - No call allocates. Scratch memory comes in `Workspace`, of the size that the matching …WorkspaceBytes gives.
// - Views are of the backend's memory(). A call may return before its work is done; calls of one thread take effect in order.
//   What a call adds to an ExactSum is there after settle().
// - Errors: badConfig for shapes, types, strides or a workspace that do not fit; the message names the argument.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "executor_sizes/executor_sizes.h"
#include "internevo/background_copies.h"
#include "internevo/device_groups.h"
#include "internevo/exact_sum.h"
#include "internevo/host_copies.h"
#include "internevo/lane.h"
#include "internevo/memory_space.h"
#include "internevo/moments.h"
#include "internevo/products.h"
#include "internevo/rope.h"
#include "internevo/status.h"
#include "internevo/stopwatch.h"
#include "internevo/tensor.h"

namespace internevo {

/// y[rows, outputs] = x[rows, inputs] · w[outputs, inputs]ᵀ. Strides of 0 mean dense rows.
struct LinearShape {
  std::int64_t rows = 0, inputs = 0, outputs = 0;
  std::int64_t inputStride = 0;   ///< row stride of x and gX; 0 = inputs
  std::int64_t outputStride = 0;  ///< row stride of y and gY; 0 = outputs
};

/// A row of `outputs` biases, and a matrix that it belongs to.
struct BiasShape {
  std::int64_t rows = 0, outputs = 0;
  std::int64_t outputStride = 0;  ///< row stride of y and gY; 0 = outputs
};

struct NormShape {
  std::int64_t rows = 0, width = 0;
};

/// Heads that stand side by side at the start of a row, such as the queries or the keys of a packed q|k|v.
struct HeadNormShape {
  std::int64_t rows = 0, heads = 0, headSize = 0;
  std::int64_t inputStride = 0;   ///< row stride of x; 0 = heads·headSize
  std::int64_t outputStride = 0;  ///< row stride of y, gY and gX; 0 = heads·headSize
};

/// Positions are positionOffset + (row mod sequence): the offset is where this rank's part of the sequence begins.
/// With `positions` (int32 [rows], e.g. counted from the start of each row's document) they are those instead: each
/// in [0, sequence), the tables hold `sequence` positions and positionOffset is 0.
struct RopeShape {
  std::int64_t rows = 0, heads = 0, headSize = 0;
  std::int64_t stride = 0;          ///< row stride; 0 = heads·headSize
  std::int64_t sequence = 0;        ///< tokens of one sequence on this rank
  std::int64_t positionOffset = 0;  ///< position of row 0
  ConstView positions{};
  std::int64_t rotarySize = 0;  ///< elements at the start of a head that turn; 0 = headSize
};

/// Query head h reads key/value head h / (heads / kvHeads). Row = batchIndex·sequence + position.
/// A query sees the keys from firstKeys[row] to its own position; firstKeys (int32 [batch·sequence]) is the position at
/// which the row's document starts, so it never falls inside a sequence. Empty: every sequence is one document.
/// (Per row and not cumulative lengths: of one size whatever the documents, cut with the rows, and read by a kernel's
/// tile without a search.)
struct AttentionShape {
  std::int64_t batch = 0, sequence = 0, heads = 0, kvHeads = 0, headSize = 0;
  std::int64_t queryStride = 0;   ///< row stride of q and gQ; 0 = heads·headSize
  std::int64_t keyStride = 0;     ///< row stride of k and gK; 0 = kvHeads·headSize
  std::int64_t valueStride = 0;   ///< row stride of v and gV; 0 = kvHeads·headSize
  std::int64_t outputStride = 0;  ///< row stride of o and gO; 0 = heads·headSize
  ConstView firstKeys{};
  std::int64_t window = 0;  ///< keys that a query sees at most, its own among them; 0: all before it
};

/// A piece of causal attention: `sequence` consecutive queries of each sequence against keySequence consecutive keys.
/// Positions are those in the whole sequence and so are firstKeys. Views begin at the piece's first row; the next
/// sequence's rows are …BatchRows further on.
struct AttentionBlockShape : AttentionShape {
  std::int64_t keySequence = 0;                     ///< rows of k, v, gK, gV of one sequence
  std::int64_t queryPosition = 0, keyPosition = 0;  ///< of the first query and the first key
  std::int64_t queryBatchRows = 0;                  ///< 0 = sequence
  std::int64_t keyBatchRows = 0;                    ///< 0 = keySequence
  std::int64_t queryGradientStride = 0;             ///< row stride of gQ; 0 = queryStride
};

/// One layer's attention as a run will call it; without gO its forward pass alone.
struct AttentionOperands {
  View q, k, v, o, logSumExp, gO, gQ, gK, gV;
  Workspace scratch;
};
/// Puts in the place of each word the largest that any rank of the run has. Collective.
using LargestOfRanks = std::function<Status(std::int64_t* words, int count)>;

struct SwigluShape {
  std::int64_t rows = 0, width = 0;
  std::int64_t gateStride = 0;    ///< row stride of gate, up and their gradients; 0 = width
  std::int64_t outputStride = 0;  ///< row stride of y and gY; 0 = width
};

/// A table split by vocabulary holds the rows [first, first + vocabulary) of `wholeVocabulary`.
struct EmbeddingShape {
  std::int64_t rows = 0, width = 0, vocabulary = 0;
  std::int64_t first = 0;
  std::int64_t wholeVocabulary = 0;  ///< 0 = vocabulary: not split
};

struct HeadLossShape {
  std::int64_t rows = 0, width = 0, vocabulary = 0;
  std::int64_t chunkRows = 0;  ///< rows whose logits exist at one time
};

/// One slice of a head that is split by vocabulary: rows [first, first + vocabulary) of `wholeVocabulary`.
struct HeadSliceShape {
  std::int64_t rows = 0, width = 0, vocabulary = 0;
  std::int64_t first = 0, wholeVocabulary = 0;
};
/// What a slice says of one row of logits: their largest, Σ exp(logit − largest), and the target's logit (0 when the
/// target is in another slice). float64.
constexpr std::int64_t kHeadStatistics = sizes::headStatistics;

struct AdamwSettings {
  float learningRate = 0, beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f, weightDecay = 0;
  std::int64_t step = 1;      ///< 1-based, for the bias correction
  float gradientScale = 1.f;  ///< multiplies the gradient first (clipping by the global norm)
};

/// Elements of a slice of a matrix, row by row, from element `first` of the slice on.
struct InitialShape {
  std::int64_t elements = 0, first = 0;
  std::int64_t columns = 0;                                      ///< of the slice
  std::int64_t wholeColumns = 0, firstRow = 0, firstColumn = 0;  ///< where it lies in the whole matrix
};

/// Scratch memory of the operators: what a plan needs to know of a backend, also where its device is not there.
class BackendSizes {
 public:
  virtual ~BackendSizes() = default;

  /// Enough for every linear call of any shape.
  virtual std::int64_t linearWorkspaceBytes() const = 0;
  /// Larger of forward and backward for this shape.
  virtual std::int64_t attentionWorkspaceBytes(const AttentionShape&) const = 0;
  /// Larger of forward and backward of a piece.
  virtual std::int64_t attentionBlockWorkspaceBytes(const AttentionBlockShape&) const = 0;
  /// Backward, and the gradient of biases. Never more than linearWorkspaceBytes, whose memory the trainer gives.
  virtual std::int64_t normWorkspaceBytes(const NormShape&) const = 0;
  /// Rows of which the head's logits exist at one time, as the trainer asks for them: the chunkRows of a HeadLossShape.
  virtual std::int64_t lossChunkRows() const = 0;
  /// Logits of one chunk (float32 [chunkRows, vocabulary]) and the matrix workspace.
  virtual std::int64_t headLossWorkspaceBytes(const HeadLossShape&) const = 0;
};

/// What a backend calls and did not build itself, as that names its version.
struct LibraryVersion {
  std::string name, version;
};

class Backend : public BackendSizes {
 public:
  virtual std::string name() const = 0;
  /// Of driver and libraries, those that are there.
  virtual std::vector<LibraryVersion> libraries() { return {}; }
  virtual int threads() const = 0;

  /// The memory that every view of a call is of; lives as long as the backend.
  virtual MemorySpace& memory() = 0;
  /// Waits until everything that was called has taken effect. Errors: of any call that was still under way.
  virtual Status settle() = 0;
  /// A lane whose jobs may call this backend and its groups. Ends before the backend.
  virtual std::unique_ptr<Lane> createLane() = 0;
  /// Collectives over memory(); null where that is the process's own, and MPI moves it. Lives as long as the backend.
  virtual DeviceGroups* groups() { return nullptr; }
  /// For calls of the thread that makes it. Ends before the backend.
  virtual std::unique_ptr<Stopwatch> createStopwatch() { return createHostStopwatch(); }
  /// Room for so many between two resets. Null where calls have done their work when they return. Ends before the backend.
  virtual std::unique_ptr<Moments> createMoments(std::int64_t /*capacity*/) { return nullptr; }
  /// Null where memory() is the process's own: a copy of that takes the process's time anyway. Ends before the backend.
  virtual std::unique_ptr<BackgroundCopies> createBackgroundCopies() { return nullptr; }
  /// Between memory() and memory of the host. Ends before the backend, and behind the lanes whose jobs copy.
  virtual std::unique_ptr<HostCopies> createHostCopies() { return createPlainHostCopies(); }

  // ---- initial weights ---------------------------------------------------------------------------------------
  /// target[elements] (float32) = standardDeviation · randomNormal(key, place in the whole matrix, row by row), rounded once.
  virtual Status initialNormal(const InitialShape&, std::uint64_t key, double standardDeviation,
                               View target) = 0;

  // ---- linear ------------------------------------------------------------------------------------------------
  /// y[rows, outputs] = x[rows, inputs] · wᵀ, w[outputs, inputs]. Any mix of float32 and bfloat16.
  virtual Status linearForward(const LinearShape&, ConstView x, ConstView w, View y, Workspace) = 0;
  /// G-X: gX[rows, inputs] (+)= gY[rows, outputs] · w.
  virtual Status linearGradInput(const LinearShape&, ConstView gY, ConstView w, View gX, bool accumulate,
                                 Workspace) = 0;
  /// G-W: gW[outputs, inputs] += gYᵀ · x. The sum over rows runs in blocks of kSumBlockRows rows, in order, so with a
  /// float32 gW calls over consecutive multiples of that many rows give the bits of one call.
  virtual Status linearGradWeight(const LinearShape&, ConstView x, ConstView gY, View gW, Workspace) = 0;

  /// Collectives run beside what is called from here on, or do not: on a device whose kernels would fill it, some room is left to them.
  virtual void shareWithCommunication(bool /*shares*/) {}

  /// For a backend that has more than one way to compute a product: tries them, and keeps to the fastest, on all ranks the same. Before a
  /// run's first step; collective. What was chosen is in `chosen`, which stays empty where there is nothing to choose.
  /// Errors: those of the calls above; badConfig when a recorded choice cannot be had.
  virtual Status chooseProducts(const ProductRequest&, const LargestOfRanks&, ProductChoices* /*chosen*/) {
    return Status::success();
  }

  /// y[row] += bias in every row, in place. bias [outputs] has the type of y. Backward keeps nothing.
  virtual Status biasAdd(const BiasShape&, ConstView bias, View y) = 0;
  /// gBias [outputs] += the sum of gY over the rows, in an order that depends on the shape alone, as the gradient of a
  /// norm's gain is summed. gY itself is the gradient that goes on. Workspace: normWorkspaceBytes of {rows, outputs}.
  virtual Status biasGradient(const BiasShape&, ConstView gY, View gBias, Workspace) = 0;

  // ---- RMSNorm -----------------------------------------------------------------------------------------------
  /// h = x + residual (or x when residual is empty), stored in `sum` when that is not empty;
  /// y[row] = h / sqrt(mean(h²) + epsilon) · gain. All [rows, width]; gain [width]; inverseRms float32 [rows].
  /// `sum` may alias x or residual. The norm is taken of h as stored (rounded).
  virtual Status rmsNormForward(const NormShape&, ConstView x, ConstView residual, ConstView gain,
                                float epsilon, View sum, View y, View inverseRms) = 0;
  /// gH[rows, width] = gradient of the norm at h, plus gSum (the gradient that reaches h past the norm, e.g. the
  /// residual path; may be empty, may alias gH); gGain [width] +=, rows in an order that
  /// depends on the shape alone.
  virtual Status rmsNormBackward(const NormShape&, ConstView h, ConstView gain, ConstView inverseRms,
                                 ConstView gY, ConstView gSum, View gH, View gGain, Workspace) = 0;

  /// RMS norm of each head by itself: y = x / sqrt(mean(x²) + epsilon) · gain over the headSize elements of a head. x and y
  /// [rows, heads, headSize], gain [headSize] for all heads; inverseRms float32 [rows, heads]. y may be x, with equal strides.
  ///
  /// Backward needs x as it was before the norm, and inverseRms. Keep x alone, in the place where y would be kept: the same call
  /// with the same x makes y, which attention's backward needs, and inverseRms again, both in workspaces and with the same bits.
  /// So the norm costs no kept memory. In place is for a layer whose x is made again before its backward pass.
  virtual Status headNormForward(const HeadNormShape&, ConstView x, ConstView gain, float epsilon, View y,
                                 View inverseRms) = 0;
  /// gX = gradient at x; may be gY, and no other. gGain [headSize] += over rows and heads, in an order that depends on the
  /// shape alone. Workspace: normWorkspaceBytes of {rows · heads, headSize}.
  virtual Status headNormBackward(const HeadNormShape&, ConstView x, ConstView gain, ConstView inverseRms,
                                  ConstView gY, View gX, View gGain, Workspace) = 0;

  /// y[elements] = a + b. y may alias either.
  virtual Status add(std::int64_t elements, ConstView a, ConstView b, View y) = 0;

  // ---- rotary positions --------------------------------------------------------------------------------------
  /// Fills cosines and sines, float32 [positions, pairs]: angle = position · inverse[pair], times the attention factor.
  virtual Status ropeTable(std::int64_t positions, const RopeFrequencies&, View cosines, View sines) = 0;
  /// Those of a model without scaling, whose heads turn whole: angle = position · theta^(−2i / headSize).
  Status ropeTable(std::int64_t positions, std::int64_t headSize, double theta, View cosines, View sines) {
    RopeFrequencies frequencies;
    INTERNEVO_RETURN_IF_ERROR(ropeFrequencies({headSize, theta}, &frequencies));
    return ropeTable(positions, frequencies, cosines, sines);
  }
  /// Rotates the pairs (i, i + rotarySize/2) of every head of x [rows, heads, headSize] in place (the convention of
  /// the Hugging Face LLaMA weights). Tables hold at least positionOffset + sequence positions of rotarySize/2 pairs.
  virtual Status ropeForward(const RopeShape&, ConstView cosines, ConstView sines, View x) = 0;
  /// The transpose: takes the gradient back, in place. It is the inverse too, unless the tables have an attention factor.
  virtual Status ropeBackward(const RopeShape&, ConstView cosines, ConstView sines, View gX) = 0;

  // ---- attention ---------------------------------------------------------------------------------------------
  /// Causal attention, scale 1/sqrt(headSize), blockwise. q, o [batch·sequence, heads, headSize];
  /// k, v [batch·sequence, kvHeads, headSize]; logSumExp float32 [batch, heads, sequence].
  virtual Status attentionForward(const AttentionShape&, ConstView q, ConstView k, ConstView v, View o,
                                  View logSumExp, Workspace) = 0;
  /// gQ, gK, gV are overwritten; they may not alias q, k, v.
  virtual Status attentionBackward(const AttentionShape&, ConstView q, ConstView k, ConstView v, ConstView o,
                                   ConstView logSumExp, ConstView gO, View gQ, View gK, View gV,
                                   Workspace) = 0;

  /// For a backend that has more than one way to compute this: tries them on these operands, whose contents are lost, and keeps to
  /// the fastest for calls with the shape, on all ranks the same. Before a run's first step; collective, with one shape on all ranks.
  /// Errors: those of the two calls above; badConfig when a way is asked for that cannot be had.
  virtual Status prepareAttention(const AttentionShape&, const AttentionOperands&, const LargestOfRanks&) {
    return Status::success();
  }

  /// Attention of a piece, put together with what o and logSumExp hold already when `merge` (the softmax of two sets
  /// of keys out of each set's own, FlashAttention's rule). o float32 [batch·queryBatchRows, heads, headSize], always
  /// normalised; logSumExp float32 [batch, heads, queryBatchRows], −infinity (and o = 0) where no key was seen yet.
  virtual Status attentionBlockForward(const AttentionBlockShape&, ConstView q, ConstView k, ConstView v,
                                       bool merge, View o, View logSumExp, Workspace) = 0;
  /// Adds the piece's share to gQ, gK, gV (float32; rows of q, k, v, strides of k and v). o and logSumExp are those of the whole
  /// softmax, o in the type of q.
  virtual Status attentionBlockBackward(const AttentionBlockShape&, ConstView q, ConstView k, ConstView v,
                                        ConstView o, ConstView logSumExp, ConstView gO, View gQ, View gK,
                                        View gV, Workspace) = 0;

  // ---- SwiGLU ------------------------------------------------------------------------------------------------
  /// y = gate · sigmoid(gate) · up, all [rows, width].
  virtual Status swigluForward(const SwigluShape&, ConstView gate, ConstView up, View y) = 0;
  /// gGate, gUp may alias gate, up (element by element).
  virtual Status swigluBackward(const SwigluShape&, ConstView gate, ConstView up, ConstView gY, View gGate,
                                View gUp) = 0;

  // ---- embedding ---------------------------------------------------------------------------------------------
  /// y[rows, width] = table[tokens[row]], tokens int32 [rows]; zeros for a token that another slice of the table has,
  /// so that the sum over the slices is the row. Errors: dataError for a token outside [0, wholeVocabulary).
  virtual Status embeddingForward(const EmbeddingShape&, ConstView tokens, ConstView table, View y) = 0;
  /// gTable [vocabulary, width] += gY, rows of a token in order; rows of other slices' tokens are left out.
  virtual Status embeddingBackward(const EmbeddingShape&, ConstView tokens, ConstView gY, View gTable) = 0;

  // ---- head and loss -----------------------------------------------------------------------------------------
  /// logits = x[rows, width] · w[vocabulary, width]ᵀ; loss of a row = logSumExp(logits) − logits[target].
  /// targets int32 [rows]; −1 = not counted. Adds each counted row's loss (not divided) to *lossSum and, when gX is
  /// not empty, writes gX[rows, width] = gradientScale · d(sum)/dx and adds to gW [vocabulary, width].
  /// gradientScale is 1 / (tokens counted in the whole global batch).
  /// gX may alias x. Errors: dataError for a target outside [−1, vocabulary).
  virtual Status headLoss(const HeadLossShape&, ConstView x, ConstView w, ConstView targets,
                          float gradientScale, ExactSum* lossSum, View gX, View gW, Workspace) = 0;

  /// Head split by vocabulary, first half: logits float32 [rows, vocabulary] = exp(x·wᵀ − largest of the row) and
  /// statistics float64 [rows, kHeadStatistics] of this slice. Errors as headLoss. Workspace: linearWorkspaceBytes.
  virtual Status headSliceForward(const HeadSliceShape&, ConstView x, ConstView w, ConstView targets,
                                  View logits, View statistics, Workspace) = 0;
  /// Second half, with the statistics of all slices, float64 [slices, rows, kHeadStatistics], this rank's at index
  /// `own`, and the logits of the first half (overwritten): adds the counted rows' losses to *lossSum unless that is
  /// null, and, when gX is not empty, writes gX[rows, width] = this slice's part of the gradient (the sum over the slices is
  /// the gradient) and adds to gW [vocabulary, width]. gX may alias x.
  virtual Status headSliceBackward(const HeadSliceShape&, int slices, int own, ConstView x, ConstView w,
                                   ConstView targets, ConstView statistics, float gradientScale,
                                   ExactSum* lossSum, View logits, View gX, View gW, Workspace) = 0;

  // ---- optimizer ---------------------------------------------------------------------------------------------
  /// Decoupled weight decay; gradient float32 or bfloat16, moments float32 [elements]. With bfloat16 parameters, master holds the
  /// float32 weights and parameters receive its rounding; with float32 parameters master is empty.
  virtual Status adamw(std::int64_t elements, const AdamwSettings&, View parameters, View master,
                       ConstView gradient, View firstMoment, View secondMoment) = 0;
  /// *sum += Σ x² over float32 or bfloat16 [elements]. Every aligned block of 64 elements is summed in float64 and added
  /// exactly, so shards that start at multiples of 64 elements give the same total as the whole.
  virtual Status squaredNorm(std::int64_t elements, ConstView x, ExactSum* sum) = 0;
  /// target += source, each float32 or bfloat16: added in float32, rounded once.
  virtual Status accumulate(std::int64_t elements, ConstView source, View target) = 0;
  /// target = source, converting between float32 and bfloat16 where the types differ.
  virtual Status convert(std::int64_t elements, ConstView source, View target) = 0;
  /// The same for `rows` rows of `width` elements, the next so many elements further on.
  virtual Status convertRows(std::int64_t rows, std::int64_t width, ConstView source,
                             std::int64_t sourceStride, View target, std::int64_t targetStride) = 0;
};

/// Rows in one block of the sum of a weight gradient.
constexpr std::int64_t kSumBlockRows = 256;

/// The CPU backend with `threads` OpenMP threads a call (≥ 1), for the best instruction set that this processor has, or the one
/// that the environment's INTERNEVO_CPU names. Errors: badConfig naming those that can be given.
Status openCpuBackend(int threads, std::unique_ptr<Backend>* result);
/// The same; a name that cannot be given counts as none. Never null.
std::unique_ptr<Backend> createCpuBackend(int threads);

}  // namespace internevo
