#include "trainer/layer_offload.h"

#include "trainer/failure.h"
#include "trainer/parameter_store.h"

namespace internevo::trainer {

void LayerOffload::start(const MemoryPlan& plan, Arena& arena, Backend& backend,
                         const std::vector<LayerTurn>& turns) {
  bytes_ = plan.offload.blockBytes;
  const MemoryPlan::Offload& offload = plan.offload;
  if (bytes_ == 0) return;
  void* host = nullptr;
  copies_ = backend.createHostCopies();
  if (offload.hostBytes > 0) require(copies_->allocate(offload.hostBytes, &host));
  for (std::size_t i = 0; i < places_.size(); ++i)
    places_[i] = viewOf(arena, offload.places[i], DataType::byte).data;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const LayerTurn& own = turns[i];
    const auto continues = [&](std::size_t forward) {
      return forward + 1 < turns.size() && turns[forward].pass == Pass::forward &&
             turns[forward + 1].pass == Pass::backward &&
             turns[forward].layerSet == turns[forward + 1].layerSet && !turns[forward].recomputed;
    };
    const bool continued = i > 0 && continues(i - 1);
    Turn turn;
    turn.place = i == 0 ? 0 : continued ? turns_.back().place : 1 - turns_.back().place;
    turn.fetches = own.pass == Pass::backward && !own.recomputed && !continued;
    turn.leaves = own.pass == Pass::forward && !own.recomputed && !continues(i);
    if (turn.fetches || turn.leaves)
      turn.host =
          static_cast<std::byte*>(host) + offload.ofLayerSet[static_cast<std::size_t>(own.layerSet)].offset;
    turns_.push_back(turn);
  }
  lane_ = backend.createLane();
}

void LayerOffload::fetch(std::size_t index) {
  if (index >= turns_.size() || !turns_[index].fetches) return;
  const Turn& turn = turns_[index];
  last_[static_cast<std::size_t>(turn.place)] = lane_->submit([this, &turn] {
    return copies_->toDevice(places_[static_cast<std::size_t>(turn.place)], turn.host, bytes_);
  });
}

int LayerOffload::begin() {
  const int place = turns_[turn_].place;
  // The first turn of a step has nothing before it that could fetch for it, and is a forward pass.
  require(lane_->wait(last_[static_cast<std::size_t>(place)]));
  fetch(turn_ + 1);
  return place;
}

void LayerOffload::end() {
  if (empty()) return;
  const Turn& turn = turns_[turn_++];
  if (!turn.leaves) return;
  last_[static_cast<std::size_t>(turn.place)] = lane_->submit([this, &turn] {
    return copies_->toHost(turn.host, places_[static_cast<std::size_t>(turn.place)], bytes_);
  });
}

}  // namespace internevo::trainer
