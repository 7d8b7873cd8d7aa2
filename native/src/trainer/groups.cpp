#include "trainer/groups.h"

#include <algorithm>
#include <numeric>

#include "trainer/failure.h"

namespace internevo::trainer {

namespace {

/// Tags tell apart groups that are made at the same time.
enum Tag { kWorld = 100, kHeads, kContext, kData, kParameters, kOptimizer, kReplicas, kTensor, kKeys, kPipeline, kEnds };

void create(const std::vector<int>& members, const std::vector<int>& ranks, int tag, Communicator* result) {
  std::vector<int> world;
  for (const int member : members) world.push_back(ranks[static_cast<std::size_t>(member)]);
  require(Communicator::create(world, tag, result));
}

/// The replicas of an optimizer shard: every oss-th of the replicas of the parameter shard, in their order.
std::vector<int> shardReplicas(const Config& c, int rank) {
  const std::vector<int>& all = groupOf(c.mesh.gradientReplicas, rank);
  const std::vector<int>& shards = groupOf(c.mesh.optimizerStateSharding, rank);
  const auto place = std::find(shards.begin(), shards.end(), rank) - shards.begin();
  std::vector<int> members;
  for (std::size_t i = static_cast<std::size_t>(place); i < all.size(); i += shards.size()) members.push_back(all[i]);
  return members;
}

/// The sequence group as a grid: head ranks are neighbours, and every headRanks()-th rank makes a ring. With tensor
/// parallelism the sequence ranks are the tensor ranks, and there is no grid.
void createSequenceGrid(const Config& c, int rank, const std::vector<int>& ranks, GroupSet* groups) {
  const std::vector<int>& sequence = groupOf(c.mesh.sequenceParallel, rank);
  const auto size = static_cast<std::size_t>(c.plan.headRanks());
  const auto place = static_cast<std::size_t>(std::find(sequence.begin(), sequence.end(), rank) - sequence.begin());
  std::vector<int> heads, context;
  for (std::size_t i = 0; i < sequence.size(); ++i) {
    if (i / size == place / size) heads.push_back(sequence[i]);
    if (i % size == place % size) context.push_back(sequence[i]);
  }
  create(heads, ranks, kHeads, &groups->heads);
  create(context, ranks, kContext, &groups->context);
  groups->context.setPolite(c.plan.overlaps());  // then a lane uses it beside the computing thread
}

}  // namespace

int keyReplicasOf(const Config& c) {
  return std::max(1, c.plan.tensorParallel / static_cast<int>(std::min<std::int64_t>(c.model.kvHeads, 1 << 20)));
}

const std::vector<int>& groupOf(const Groups& groups, int rank) {
  for (const auto& group : groups) {
    if (std::find(group.begin(), group.end(), rank) != group.end()) return group;
  }
  throw Failure(StatusCode::internal, "rank " + std::to_string(rank) + " is in no group of the mesh");
}

void createGroups(const Config& c, int rank, const std::vector<int>& ranks, GroupSet* groups) {
  std::vector<int> all(static_cast<std::size_t>(c.mesh.worldSize));
  std::iota(all.begin(), all.end(), 0);
  create(all, ranks, kWorld, &groups->world);
  createSequenceGrid(c, rank, ranks, groups);
  create(groupOf(c.mesh.dataParallel, rank), ranks, kData, &groups->data);
  create(groupOf(c.mesh.parameterSharding, rank), ranks, kParameters, &groups->parameterShards);
  create(groupOf(c.mesh.optimizerStateSharding, rank), ranks, kOptimizer, &groups->optimizerShards);
  create(shardReplicas(c, rank), ranks, kReplicas, &groups->replicas);
  const std::vector<int>& tensor = groupOf(c.mesh.tensorParallel, rank);
  create(tensor, ranks, kTensor, &groups->tensor);
  if (const int replicas = keyReplicasOf(c); replicas > 1) {
    const auto first = tensor.begin() + groups->tensor.index() / replicas * replicas;
    create(std::vector<int>(first, first + replicas), ranks, kKeys, &groups->keyReplicas);
  }
  const std::vector<int>& stages = groupOf(c.mesh.pipelineParallel, rank);
  create(stages, ranks, kPipeline, &groups->pipeline);
  const bool end = rank == stages.front() || rank == stages.back();
  if (c.model.tiedEmbeddings && stages.size() > 1 && end) {
    create({stages.front(), stages.back()}, ranks, kEnds, &groups->ends);
  }
}

}  // namespace internevo::trainer
