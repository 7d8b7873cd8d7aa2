#include "trainer/parameter_store.h"

#include <algorithm>
#include <cstring>

#include "trainer/clock.h"
#include "trainer/failure.h"
#include "trainer/random.h"

namespace internevo::trainer {

View viewOf(Arena& arena, const Piece& piece, DataType type) {
  if (piece.bytes == 0) return {nullptr, type};
  void* data = nullptr;
  require(arena.at(piece.offset, piece.bytes, &data));
  return {data, type};
}

ParameterStore::ParameterStore(const Config& config, const Layout& layout, const MemoryPlan& plan, Arena& arena,
                               Backend& backend, GroupSet& groups)
    : plan_(config.plan), layout_(layout), backend_(backend), groups_(groups), seed_(config.seed) {
  parameters_ = viewOf(arena, plan.parameters, config.precision);
  gradients_ = viewOf(arena, plan.gradients, DataType::float32);
  gradientBytes_ = plan.gradients.bytes;
  firstMoment_ = viewOf(arena, plan.firstMoment, DataType::float32);
  secondMoment_ = viewOf(arena, plan.secondMoment, DataType::float32);
  master_ = viewOf(arena, plan.master, DataType::float32);
  pool_ = viewOf(arena, plan.gatherPool, config.precision);
  unitGradient_ = viewOf(arena, plan.unitGradient, DataType::float32);
  reduceWorkspace_ = {viewOf(arena, plan.reduceWorkspace, DataType::byte).data, plan.reduceWorkspace.bytes};
}

void ParameterStore::communicate(const std::function<Status()>& call) {
  const Timed timed(&groups_.communicationSeconds);
  require(call());
}

// ---- shards --------------------------------------------------------------------------------------------------------

View ParameterStore::parameterShard(int unit) const {
  return parameters_.offset(layout_.unitStart(unit) / plan_.parameterSharding);
}

View ParameterStore::ownedParameters(int unit) const {
  return parameterShard(unit).offset(groups_.optimizerShards.index() * layout_.optimizerShard(unit));
}

View ParameterStore::ownedPart(View whole, int unit) const {
  return whole.offset(layout_.unitStart(unit) / (plan_.parameterSharding * plan_.optimizerStateSharding));
}

View ParameterStore::gradientShard(int unit) const {
  return gradients_.offset(layout_.unitStart(unit) / (plan_.parameterSharding * plan_.gradientSharding));
}

View ParameterStore::weights(int unit) { return master_.empty() ? ownedParameters(unit) : ownedPart(master_, unit); }

View ParameterStore::summedGradient(int unit) {
  if (plan_.gradientSharding > 1) return gradientShard(unit);
  return gradientShard(unit).offset(groups_.optimizerShards.index() * layout_.optimizerShard(unit));
}

std::int64_t ParameterStore::shardStart(int unit) const {
  return groups_.parameterShards.index() * layout_.parameterShard(unit) +
         groups_.optimizerShards.index() * layout_.optimizerShard(unit);
}

// ---- initial weights -----------------------------------------------------------------------------------------------

void ParameterStore::forOwnedParts(
    int unit, const std::function<void(const LogicalTensor&, std::int64_t, std::int64_t)>& body) const {
  const std::int64_t begin = shardStart(unit), end = begin + layout_.optimizerShard(unit);
  for (const LogicalTensor& tensor : layout_.unit(unit).tensors) {
    const std::int64_t first = std::max(begin, tensor.offset);
    const std::int64_t last = std::min(end, tensor.offset + tensor.elements());
    if (first < last) body(tensor, first, last);
  }
}

void ParameterStore::initialize() {
  for (int unit = 0; unit < layout_.unitCount(); ++unit) {
    float* const target = weights(unit).as<float>();
    const std::int64_t begin = shardStart(unit), elements = layout_.optimizerShard(unit);
    std::fill(target, target + elements, 0.f);
    forOwnedParts(unit, [&](const LogicalTensor& tensor, std::int64_t first, std::int64_t last) {
      const std::uint64_t key = streamKey(seed_, tensor.name);
      for (std::int64_t i = first; i < last; ++i) {
        const auto index = static_cast<std::uint64_t>(tensor.globalIndex(i - tensor.offset));
        target[i - begin] = tensor.kind == TensorKind::gain
                                ? 1.f
                                : static_cast<float>(tensor.initStandardDeviation * randomNormal(key, index));
      }
    });
    const auto bytes = static_cast<std::size_t>(elements) * sizeof(float);
    std::memset(firstMoment(unit).data, 0, bytes);
    std::memset(secondMoment(unit).data, 0, bytes);
  }
  weightsLoaded();
}

void ParameterStore::weightsLoaded() {
  for (int unit = 0; unit < layout_.unitCount() && !master_.empty(); ++unit) {
    require(backend_.convert(layout_.optimizerShard(unit), weights(unit), ownedParameters(unit)));
  }
  shareParameters();
}

// ---- units ---------------------------------------------------------------------------------------------------------

ConstView ParameterStore::gather(int unit) {
  if (plan_.parameterSharding == 1) return parameterShard(unit);
  communicate([&] {
    return groups_.parameterShards.allGather(parameterShard(unit), pool_, layout_.parameterShard(unit));
  });
  return pool_;
}

View ParameterStore::gradient(int unit) {
  if (!staged()) return gradientShard(unit);
  std::memset(unitGradient_.data, 0, static_cast<std::size_t>(layout_.unit(unit).paddedElements) * sizeof(float));
  return unitGradient_;
}

View ParameterStore::sumOverReplicas(View shard, int unit) {
  const std::int64_t elements = layout_.optimizerShard(unit);
  const View part = shard.offset(groups_.optimizerShards.index() * elements);
  communicate([&] {
    INTERNEVO_RETURN_IF_ERROR(groups_.optimizerShards.reduceScatter(shard, part, elements, reduceWorkspace_));
    return groups_.replicas.allReduce(part, elements, ReduceOperation::sum, reduceWorkspace_);
  });
  return part;
}

void ParameterStore::reduce(int unit) {
  if (!staged()) return;
  const std::int64_t elements = layout_.parameterShard(unit);
  const View shard = unitGradient_.offset(groups_.parameterShards.index() * elements);
  communicate(
      [&] { return groups_.parameterShards.reduceScatter(unitGradient_, shard, elements, reduceWorkspace_); });
  if (plan_.gradientSharding > 1) {
    require(backend_.accumulate(layout_.optimizerShard(unit), sumOverReplicas(shard, unit), gradientShard(unit)));
  } else {
    require(backend_.accumulate(elements, shard, gradientShard(unit)));
  }
}

// ---- step ----------------------------------------------------------------------------------------------------------

void ParameterStore::beginStep() { std::memset(gradients_.data, 0, static_cast<std::size_t>(gradientBytes_)); }

void ParameterStore::finishGradients(ExactSum* squares) {
  if (plan_.gradientSharding == 1 && plan_.optimizerStateSharding == 1) {
    communicate([&] {
      return groups_.replicas.allReduce(gradients_, gradientBytes_ / 4, ReduceOperation::sum, reduceWorkspace_);
    });
  } else if (plan_.gradientSharding == 1) {
    for (int unit = 0; unit < layout_.unitCount(); ++unit) sumOverReplicas(gradientShard(unit), unit);
  }
  for (int unit = 0; unit < layout_.unitCount(); ++unit) sumOverPositions(unit);
  if (groups_.replicas.index() != 0) return;  // every parameter counts once
  for (int unit = 0; unit < layout_.unitCount(); ++unit) addSquares(unit, squares);
}

void ParameterStore::sumOverPositions(int unit) {
  if (layout_.unit(unit).onBothEnds) {
    communicate([&] {
      return groups_.ends.allReduce(summedGradient(unit), layout_.optimizerShard(unit), ReduceOperation::sum,
                                    reduceWorkspace_);
    });
  }
  if (plan_.tensorParallel == 1) return;
  forOwnedParts(unit, [&](const LogicalTensor& tensor, std::int64_t first, std::int64_t last) {
    if (tensor.tensorReplicas == 1) return;
    const bool all = tensor.tensorReplicas == groups_.tensor.size();
    communicate([&] {
      return (all ? groups_.tensor : groups_.keyReplicas)
          .allReduce(summedGradient(unit).offset(first - shardStart(unit)), last - first, ReduceOperation::sum,
                     reduceWorkspace_);
    });
  });
}

void ParameterStore::addSquares(int unit, ExactSum* squares) {
  const View gradient = summedGradient(unit);
  if (plan_.tensorParallel == 1) {  // one tensor's copy counts as all of the unit's do
    if (!layout_.unit(unit).tensors.front().primary) return;
    require(backend_.squaredNorm(layout_.optimizerShard(unit), gradient, squares));
    return;
  }
  const std::int64_t begin = shardStart(unit);
  forOwnedParts(unit, [&](const LogicalTensor& tensor, std::int64_t first, std::int64_t last) {
    if (!tensor.primary) return;
    // Cut where blocks of the sum end, so that they do not depend on where shards begin.
    const std::int64_t cut = std::min(last, alignUp(first, 64));
    if (first < cut) require(backend_.squaredNorm(cut - first, gradient.offset(first - begin), squares));
    if (cut < last) require(backend_.squaredNorm(last - cut, gradient.offset(cut - begin), squares));
  });
}

void ParameterStore::update(const AdamwSettings& settings) {
  for (int unit = 0; unit < layout_.unitCount(); ++unit) {
    forOwnedParts(unit, [&](const LogicalTensor& tensor, std::int64_t first, std::int64_t last) {
      AdamwSettings own = settings;
      if (tensor.kind == TensorKind::gain) own.weightDecay = 0;
      const std::int64_t at = first - shardStart(unit);
      require(backend_.adamw(last - first, own, ownedParameters(unit).offset(at),
                             master_.empty() ? View{} : ownedPart(master_, unit).offset(at),
                             summedGradient(unit).offset(at), firstMoment(unit).offset(at),
                             secondMoment(unit).offset(at)));
    });
  }
  shareParameters();
}

void ParameterStore::shareParameters() {
  if (plan_.optimizerStateSharding == 1) return;
  for (int unit = 0; unit < layout_.unitCount(); ++unit) {
    communicate([&] {
      return groups_.optimizerShards.allGather(ownedParameters(unit), parameterShard(unit),
                                               layout_.optimizerShard(unit));
    });
  }
}

}  // namespace internevo::trainer
