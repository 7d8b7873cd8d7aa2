#include "trainer/parameter_store.h"

#include <algorithm>
#include <string>
#include <utility>

#include "trainer/failure.h"
#include "trainer/pipeline_schedule.h"
#include "trainer/random.h"

namespace internevo::trainer {

View viewOf(Arena& arena, const Piece& piece, DataType type) {
  if (piece.bytes == 0) return {nullptr, type};
  void* data = nullptr;
  require(arena.at(piece.offset, piece.bytes, &data));
  return {data, type};
}

namespace {

std::vector<PipelineOperation> operationsOf(const PlanConfig& p, const Layout& layout) {
  return pipelineSchedule(layout.position().stage, p.pipelineParallel, p.microBatches, p.pipelineChunks);
}

}  // namespace

ParameterStore::ParameterStore(const Config& config, const Layout& layout, const MemoryPlan& plan,
                               Arena& arena, Backend& backend, GroupSet& groups)
    : plan_(config.plan),
      layout_(layout),
      backend_(backend),
      groups_(groups),
      seed_(config.seed),
      staging_(planStaging(config.plan, layout, viewOf(arena, plan.unitGradient, config.gradientPrecision))),
      contributions_(static_cast<std::size_t>(layout.unitCount())),
      shared_(static_cast<std::size_t>(layout.unitCount())),
      summed_(static_cast<std::size_t>(layout.unitCount())),
      pool_(layout, planGathers(), config.plan.overlaps() ? 2 : 1,
            viewOf(arena, plan.gatherPool, config.precision),
            viewOf(arena, plan.parameters, config.precision), groups.parameterShards, groups, lane_),
      lane_(backend, groups, config.plan.overlaps()) {
  parameters_ = viewOf(arena, plan.parameters, config.precision);
  gradients_ = viewOf(arena, plan.gradients, config.gradientPrecision);
  gradientBytes_ = plan.gradients.bytes;
  firstMoment_ = viewOf(arena, plan.firstMoment, DataType::float32);
  secondMoment_ = viewOf(arena, plan.secondMoment, DataType::float32);
  master_ = viewOf(arena, plan.master, DataType::float32);
  const auto scratch = [&](const Piece& piece) {
    return Workspace{viewOf(arena, piece, DataType::byte).data, piece.bytes};
  };
  reduceWorkspace_ = scratch(plan.reduceWorkspace);
  laneWorkspace_ = lane_.overlapped() ? scratch(plan.laneReduceWorkspace) : reduceWorkspace_;
  for (Communicator* group : {&groups.parameterShards, &groups.optimizerShards, &groups.replicas}) {
    group->setPolite(lane_.overlapped());
  }
  if (config.validation) {
    evaluationPool_.emplace(
        layout, evaluationGatherSchedule(plan_, layout, forwardOnly(operationsOf(plan_, layout))),
        config.plan.overlaps() ? 2 : 1, pool_.memory(), parameters_, groups.parameterShards, groups, lane_);
  }
  announceBuffers(plan);
}

void ParameterStore::announceBuffers(const MemoryPlan& plan) {
  const auto announce = [&](Communicator& group, View view, std::int64_t bytes) {
    if (group.size() == 1 || view.empty() || bytes == 0) return;
    require(Announcement::make(group.device(), view.data, bytes, &announcements_.emplace_back()));
  };
  // Gathers go from the shards to the pool, reductions from the staging to a part of it.
  announce(groups_.parameterShards, parameters_, plan.parameters.bytes);
  announce(groups_.parameterShards, pool_.memory(), plan.gatherPool.bytes);
  announce(groups_.parameterShards, staging_.memory, plan.unitGradient.bytes);
  // What was updated is gathered, and gradients are summed, where they stand.
  announce(groups_.optimizerShards, parameters_, plan.parameters.bytes);
  announce(groups_.optimizerShards, gradients_, plan.gradients.bytes);
  announce(groups_.replicas, gradients_, plan.gradients.bytes);
}

ParameterStore::Staging ParameterStore::planStaging(const PlanConfig& plan, const Layout& layout,
                                                    View memory) {
  Staging staging;
  staging.memory = memory;
  staging.groups = gradientSchedule(plan, layout, operationsOf(plan, layout));
  std::vector<std::int64_t> sizes;
  for (const UnitRange& group : staging.groups) sizes.push_back(elementsOf(group, layout));
  const int slots = plan.backwardOverlap == BackwardOverlap::none ? 1 : 2;
  staging.places = planRing(sizes, slots * gradientSlotElements(plan, layout));
  staging.tickets.resize(sizes.size());
  return staging;
}

std::vector<GatherGroup> ParameterStore::planGathers() const {
  std::vector<GatherGroup> gathers = gatherSchedule(plan_, layout_, operationsOf(plan_, layout_));
  if (reducesBeside()) letReductionsPass(staging_.groups, staging_.places, layout_, &gathers);
  return gathers;
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

View ParameterStore::weights(int unit) {
  return master_.empty() ? ownedParameters(unit) : ownedPart(master_, unit);
}

View ParameterStore::summedGradient(int unit) {
  if (plan_.gradientSharding > 1) return gradientShard(unit);
  return gradientShard(unit).offset(groups_.optimizerShards.index() * layout_.optimizerShard(unit));
}

std::int64_t ParameterStore::shardStart(int unit) const {
  return groups_.parameterShards.index() * layout_.parameterShard(unit) +
         groups_.optimizerShards.index() * layout_.optimizerShard(unit);
}

// ---- initial weights -----------------------------------------------------------------------------------------------

template <typename Body>
void ParameterStore::forOwnedParts(int unit, const Body& body) const {
  const std::int64_t begin = shardStart(unit), end = begin + layout_.optimizerShard(unit);
  for (const LogicalTensor& tensor : layout_.unit(unit).tensors) {
    const std::int64_t first = std::max(begin, tensor.offset);
    const std::int64_t last = std::min(end, tensor.offset + tensor.elements());
    if (first < last) body(tensor, first, last);
  }
}

void ParameterStore::initialize() {
  std::vector<float> ones;
  for (int unit = 0; unit < layout_.unitCount(); ++unit) {
    const std::int64_t begin = shardStart(unit), bytes = 4 * layout_.optimizerShard(unit);
    for (const View& view : {weights(unit), firstMoment(unit), secondMoment(unit)}) {
      require(backend_.memory().zero(view.data, bytes));
    }
    forOwnedParts(unit, [&](const LogicalTensor& tensor, std::int64_t first, std::int64_t last) {
      if (tensor.kind == TensorKind::bias) return;  // begins as 0
      const View target = weights(unit).offset(first - begin);
      if (tensor.kind == TensorKind::gain) {
        ones.assign(static_cast<std::size_t>(last - first), 1.f);
        return require(backend_.memory().upload(target.data, ones.data(), 4 * (last - first)));
      }
      const InitialShape shape{last - first,         first - tensor.offset, tensor.columns,
                               tensor.globalColumns, tensor.firstRow,       tensor.firstColumn};
      require(
          backend_.initialNormal(shape, streamKey(seed_, tensor.name), tensor.initStandardDeviation, target));
    });
  }
  weightsLoaded();
}

void ParameterStore::weightsLoaded() {
  for (int unit = 0; unit < layout_.unitCount() && !master_.empty(); ++unit) {
    require(backend_.convert(layout_.optimizerShard(unit), weights(unit), ownedParameters(unit)));
  }
  shareParameters();
}

// ---- jobs of the lane ----------------------------------------------------------------------------------------------

Lane::Ticket ParameterStore::submit(Work work, const char* name, int unit, std::int64_t group) {
  // From here on it could travel: what the lane makes of it is seen beside it in the timeline.
  if (lane_.overlapped())
    const Activity::Scope ready(*groups_.activity, ActivityLane::compute, "ready to be sent", unit);
  return lane_.submit(name, unit,
                      Job{this, static_cast<std::int32_t>(work), unit, static_cast<std::int32_t>(group)});
}

Status ParameterStore::communicate(Work work, std::int64_t group, int unit) {
  View part;
  const auto scope = [&](const char* name) {
    return Activity::Scope(*groups_.activity, lane_.activityLane(), name, unit, -1, !lane_.overlapped());
  };
  switch (work) {
    case Work::reduceMicroBatch: {
      const auto inside = scope("reduce-scatter gradients");
      return reduceMicroBatch(group, unit);
    }
    case Work::sumOverReplicas: {
      const auto inside = scope("reduce gradients over replicas");
      return sumOverReplicas(gradientShard(unit), unit, &part);
    }
    case Work::sumAllOverReplicas: {
      const auto inside = scope("all-reduce gradients");
      return groups_.replicas.allReduce(gradients_, gradientBytes_ / bytesPerElement(gradients_.type),
                                        ReduceOperation::sum, laneWorkspace_);
    }
    case Work::shareParameters: {
      const auto inside = scope("all-gather updated parameters");
      return groups_.optimizerShards.allGather(ownedParameters(unit), parameterShard(unit),
                                               layout_.optimizerShard(unit));
    }
  }
  return {StatusCode::internal, "a job of the communication lane is of no kind"};
}

Status ParameterStore::sumOverReplicas(View shard, int unit, View* part) {
  const std::int64_t elements = layout_.optimizerShard(unit);
  *part = shard.offset(groups_.optimizerShards.index() * elements);
  INTERNEVO_RETURN_IF_ERROR(groups_.optimizerShards.reduceScatter(shard, *part, elements, laneWorkspace_));
  return groups_.replicas.allReduce(*part, elements, ReduceOperation::sum, laneWorkspace_);
}

Status ParameterStore::reduceMicroBatch(std::int64_t group, int unit) {
  const std::int64_t elements = layout_.parameterShard(unit);
  const View whole = stagingOf(group, unit), shard = whole.offset(groups_.parameterShards.index() * elements);
  INTERNEVO_RETURN_IF_ERROR(groups_.parameterShards.reduceScatter(whole, shard, elements, laneWorkspace_));
  if (plan_.gradientSharding == 1) return backend_.accumulate(elements, shard, gradientShard(unit));
  View part;
  INTERNEVO_RETURN_IF_ERROR(sumOverReplicas(shard, unit, &part));
  return backend_.accumulate(layout_.optimizerShard(unit), part, gradientShard(unit));
}

// ---- units ---------------------------------------------------------------------------------------------------------

ConstView ParameterStore::get(int unit) {
  if (plan_.parameterSharding > 1)
    return pool().get(unit);  // gathered behind what was shared, on the same lane
  lane_.wait(std::exchange(shared_[static_cast<std::size_t>(unit)], 0), "wait for updated parameters", unit);
  return parameterShard(unit);
}

void ParameterStore::release(int unit) {
  if (plan_.parameterSharding > 1) pool().release(unit);
}

View ParameterStore::stagingOf(std::int64_t group, int unit) const {
  const auto place = static_cast<std::size_t>(group);
  return staging_.memory.offset(staging_.places[place].offset + layout_.unitStart(unit) -
                                layout_.unitStart(staging_.groups[place].first));
}

View ParameterStore::gradient(int unit) {
  if (!staged()) return gradientShard(unit);
  Staging& s = staging_;
  const auto holds = [&](std::int64_t group) {
    const UnitRange& units = s.groups[static_cast<std::size_t>(group)];
    return unit >= units.first && unit < units.first + units.count;
  };
  const auto refuse = [&](const char* what) {
    throw Failure(StatusCode::internal,
                  "the gradient of unit " + std::to_string(unit) + " was asked for " + what);
  };
  if (s.open && holds(s.current)) return stagingOf(s.current, unit);
  if (s.open) refuse("before the one before it was reduced");
  if (s.current + 1 == static_cast<std::int64_t>(s.groups.size()) || !holds(s.current + 1))
    refuse("out of turn");
  const auto place = static_cast<std::size_t>(++s.current);
  s.open = true, s.reduced = 0;
  const std::int64_t after = s.places[place].after;
  if (after >= 0)
    lane_.wait(s.tickets[static_cast<std::size_t>(after)], "wait for reduce-scatter of gradients", unit);
  const UnitRange& group = s.groups[place];
  require(backend_.memory().zero(stagingOf(s.current, group.first).data,
                                 bytesPerElement(s.memory.type) * elementsOf(group, layout_)));
  return stagingOf(s.current, unit);
}

void ParameterStore::reduce(int unit) {
  const UnitRange group = gradientGroupOf(plan_, layout_, unit);
  ++contributions_[static_cast<std::size_t>(unit)];
  if (staged()) {
    Staging& s = staging_;
    if (!s.open || s.groups[static_cast<std::size_t>(s.current)].first != group.first ||
        (s.reduced >> (unit - group.first) & 1u) != 0) {
      throw Failure(StatusCode::internal,
                    "the gradient of unit " + std::to_string(unit) + " was reduced out of turn");
    }
    s.reduced |= 1u << (unit - group.first);
    if (s.reduced + 1u != 1u << group.count) return;  // its block's other unit is still to come
    Lane::Ticket& ticket = s.tickets[static_cast<std::size_t>(s.current)];
    for (int i = 0; i < group.count; ++i) {
      ticket = submit(Work::reduceMicroBatch, "reduce-scatter gradients", group.first + i, s.current);
    }
    s.open = false;
    if (!reducesBeside()) lane_.wait(ticket, "reduce-scatter gradients", unit);
    pool_.reduced();
  }
  if (!reducesBeside() || plan_.gradientSharding > 1) return;
  for (int each = staged() ? group.first : unit; each < (staged() ? group.first + group.count : unit + 1);
       ++each) {
    const auto place = static_cast<std::size_t>(each);
    if (contributions_[place] != contributionsOf(plan_, layout_, each)) continue;
    submit(Work::sumOverReplicas, "reduce gradients over replicas", each);
    summed_[place] = true;
  }
}

// ---- step ----------------------------------------------------------------------------------------------------------

void ParameterStore::beginStep() {
  require(backend_.memory().zero(gradients_.data, gradientBytes_));
  std::fill(contributions_.begin(), contributions_.end(), 0);
  std::fill(summed_.begin(), summed_.end(), false);
  std::fill(staging_.tickets.begin(), staging_.tickets.end(), 0);
  staging_.current = -1, staging_.open = false;
  pool_.beginStep();
}

void ParameterStore::endPasses() { pool_.endStep(); }

void ParameterStore::beginEvaluation() {
  settle();
  pool_.forget();
  evaluating_ = true;
}

void ParameterStore::beginBatch() { evaluationPool_->beginStep(); }

void ParameterStore::endBatch() { evaluationPool_->endStep(); }

void ParameterStore::weightsChanged() {
  pool_.weightsChanged();
  if (evaluationPool_) evaluationPool_->weightsChanged();
}

void ParameterStore::finishGradients(ExactSum* squares) {
  if (plan_.gradientSharding == 1 && plan_.optimizerStateSharding == 1 && !reducesBeside()) {
    submit(Work::sumAllOverReplicas, "all-reduce gradients", -1);
  } else if (plan_.gradientSharding == 1) {
    for (int unit = 0; unit < layout_.unitCount(); ++unit) {
      if (!summed_[static_cast<std::size_t>(unit)])
        submit(Work::sumOverReplicas, "reduce gradients over replicas", unit);
    }
  }
  lane_.waitAll("wait for reductions of gradients");
  for (int unit = 0; unit < layout_.unitCount(); ++unit) sumOverPositions(unit);
  if (groups_.replicas.index() != 0) return;  // every parameter counts once
  const Activity::Scope scope(*groups_.activity, ActivityLane::compute, "gradient norm");
  for (int unit = 0; unit < layout_.unitCount(); ++unit) addSquares(unit, squares);
}

void ParameterStore::sumOverPositions(int unit) {
  if (layout_.unit(unit).onBothEnds) {
    const Exposed exposed(groups_, "all-reduce gradients of both ends", unit);
    require(groups_.ends.allReduce(summedGradient(unit), layout_.optimizerShard(unit), ReduceOperation::sum,
                                   reduceWorkspace_));
  }
  if (plan_.tensorParallel == 1) return;
  forOwnedParts(unit, [&](const LogicalTensor& tensor, std::int64_t first, std::int64_t last) {
    if (tensor.tensorReplicas == 1) return;
    const bool all = tensor.tensorReplicas == groups_.tensor.size();
    const Exposed exposed(groups_, "all-reduce gradients of tensor replicas", unit);
    require((all ? groups_.tensor : groups_.keyReplicas)
                .allReduce(summedGradient(unit).offset(first - shardStart(unit)), last - first,
                           ReduceOperation::sum, reduceWorkspace_));
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
  weightsChanged();
  for (int unit = 0; unit < layout_.unitCount(); ++unit) {
    {
      const Activity::Scope scope(*groups_.activity, ActivityLane::compute, "optimizer", unit);
      forOwnedParts(unit, [&](const LogicalTensor& tensor, std::int64_t first, std::int64_t last) {
        AdamwSettings own = settings;
        if (tensor.kind != TensorKind::matrix) own.weightDecay = 0;
        const std::int64_t at = first - shardStart(unit);
        require(backend_.adamw(last - first, own, ownedParameters(unit).offset(at),
                               master_.empty() ? View{} : ownedPart(master_, unit).offset(at),
                               summedGradient(unit).offset(at), firstMoment(unit).offset(at),
                               secondMoment(unit).offset(at)));
      });
    }
    // Units stand in the order of their first use: what the next step begins with is there first.
    if (plan_.optimizerStateSharding > 1) {
      shared_[static_cast<std::size_t>(unit)] =
          submit(Work::shareParameters, "all-gather updated parameters", unit);
    }
    pool_.updated(unit);
  }
}

void ParameterStore::settle() { lane_.waitAll("wait for updated parameters"); }

void ParameterStore::shareParameters() {
  weightsChanged();
  if (plan_.optimizerStateSharding == 1) return;
  for (int unit = 0; unit < layout_.unitCount(); ++unit) {
    submit(Work::shareParameters, "all-gather updated parameters", unit);
  }
  settle();
}

}  // namespace internevo::trainer
