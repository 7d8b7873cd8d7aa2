#include "trainer/groups.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "trainer/agreement.h"
#include "trainer/failure.h"

namespace internevo::trainer {

namespace {

/// Tags tell apart groups that are made at the same time.
enum Tag {
  kWorld = 100,
  kHeads,
  kContext,
  kData,
  kParameters,
  kOptimizer,
  kReplicas,
  kTensor,
  kKeys,
  kPipeline,
  kEnds
};

/// Makes groups by MPI, and moves them to the device where there is one. All ranks make the same kinds in the same order.
class Maker {
 public:
  Maker(const std::vector<int>& ranks, DeviceGroups* device) : ranks_(ranks), device_(device) {}

  void create(const std::vector<int>& members, int tag, Communicator* result, bool messages = false) const {
    std::vector<int> world;
    for (const int member : members) world.push_back(ranks_[static_cast<std::size_t>(member)]);
    require(Communicator::create(world, tag, result));
    if (device_ == nullptr) return;
    std::unique_ptr<DeviceGroup> made;
    require(device_->makeGroup(*std::min_element(members.begin(), members.end()), result->index(),
                               result->size(), messages, &made));
    result->moveToDevice(std::move(made));
  }
  /// The part of a rank that is in no group of a kind which others have.
  void standAside(int size) const {
    if (device_ == nullptr) return;
    std::unique_ptr<DeviceGroup> none;
    require(device_->makeGroup(-1, 0, size, false, &none));
  }

 private:
  const std::vector<int>& ranks_;
  DeviceGroups* const device_;
};

/// The replicas of an optimizer shard: every oss-th of the replicas of the parameter shard, in their order.
std::vector<int> shardReplicas(const Config& c, int rank) {
  const std::vector<int>& all = groupOf(c.mesh.gradientReplicas, rank);
  const std::vector<int>& shards = groupOf(c.mesh.optimizerStateSharding, rank);
  const auto place = std::find(shards.begin(), shards.end(), rank) - shards.begin();
  std::vector<int> members;
  for (std::size_t i = static_cast<std::size_t>(place); i < all.size(); i += shards.size())
    members.push_back(all[i]);
  return members;
}

/// The sequence group as a grid: head ranks are neighbours, and every headRanks()-th rank makes a ring. With tensor
/// parallelism the sequence ranks are the tensor ranks, and there is no grid.
void createSequenceGrid(const Config& c, int rank, const Maker& make, GroupSet* groups) {
  const std::vector<int>& sequence = groupOf(c.mesh.sequenceParallel, rank);
  const auto size = static_cast<std::size_t>(c.plan.headRanks());
  const auto place =
      static_cast<std::size_t>(std::find(sequence.begin(), sequence.end(), rank) - sequence.begin());
  std::vector<int> heads, context;
  for (std::size_t i = 0; i < sequence.size(); ++i) {
    if (i / size == place / size) heads.push_back(sequence[i]);
    if (i % size == place % size) context.push_back(sequence[i]);
  }
  make.create(heads, kHeads, &groups->heads);
  make.create(context, kContext, &groups->context);
  groups->context.setPolite(c.plan.overlaps());  // then a lane uses it beside the computing thread
}

}  // namespace

int keyReplicasOf(const Config& c) {
  return std::max(1,
                  c.plan.tensorParallel / static_cast<int>(std::min<std::int64_t>(c.model.kvHeads, 1 << 20)));
}

const std::vector<int>& groupOf(const Groups& groups, int rank) {
  for (const auto& group : groups) {
    if (std::find(group.begin(), group.end(), rank) != group.end()) return group;
  }
  throw Failure(StatusCode::internal, "rank " + std::to_string(rank) + " is in no group of the mesh");
}

void createWorld(const Config& c, const std::vector<int>& ranks, GroupSet* groups) {
  std::vector<int> all(static_cast<std::size_t>(c.mesh.worldSize));
  std::iota(all.begin(), all.end(), 0);
  Maker(ranks, nullptr).create(all, kWorld, &groups->world);
}

void startDeviceGroups(const Communicator& world, Workspace scratch, DeviceGroups* device) {
  if (device == nullptr || world.size() == 1) return;
  std::array<std::byte, DeviceGroups::kIdBytes> id{};
  // A rank that has not what it needs is known to all before they wait for one another.
  agree(world, scratch, [&] { require(device->createId(world.index() == 0 ? id.data() : nullptr)); });
  require(world.broadcast({id.data(), DataType::byte}, DeviceGroups::kIdBytes, 0));
  require(device->start(id.data(), world.index(), world.size()));
}

void createGroups(const Config& c, int rank, const std::vector<int>& ranks, DeviceGroups* device,
                  GroupSet* groups) {
  const Maker make(ranks, device);
  if (groups->world.size() != c.mesh.worldSize) createWorld(c, ranks, groups);
  createSequenceGrid(c, rank, make, groups);
  make.create(groupOf(c.mesh.dataParallel, rank), kData, &groups->data);
  make.create(groupOf(c.mesh.parameterSharding, rank), kParameters, &groups->parameterShards);
  make.create(groupOf(c.mesh.optimizerStateSharding, rank), kOptimizer, &groups->optimizerShards);
  make.create(shardReplicas(c, rank), kReplicas, &groups->replicas);
  const std::vector<int>& tensor = groupOf(c.mesh.tensorParallel, rank);
  make.create(tensor, kTensor, &groups->tensor);
  if (const int replicas = keyReplicasOf(c); replicas > 1) {
    const auto first = tensor.begin() + groups->tensor.index() / replicas * replicas;
    make.create(std::vector<int>(first, first + replicas), kKeys, &groups->keyReplicas);
  }
  const std::vector<int>& stages = groupOf(c.mesh.pipelineParallel, rank);
  make.create(stages, kPipeline, &groups->pipeline, true);
  const bool end = rank == stages.front() || rank == stages.back();
  if (c.model.tiedEmbeddings && stages.size() > 1) {
    if (end) {
      make.create({stages.front(), stages.back()}, kEnds, &groups->ends);
    } else {
      make.standAside(2);
    }
  }
}

}  // namespace internevo::trainer
