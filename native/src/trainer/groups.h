// The communicators of a rank, made from the plan's mesh.
#pragma once

#include "internevo/collectives.h"
#include "trainer/config.h"

namespace internevo::trainer {

struct GroupSet {
  Communicator world;              ///< all ranks of the run
  Communicator sequence;           ///< Ulysses
  Communicator data;
  Communicator parameterShards;    ///< ps
  Communicator optimizerShards;    ///< oss
  Communicator replicas;           ///< the R/(ps·oss) ranks with the same optimizer shard
  Communicator tensor;             ///< tensor parallelism
  Communicator keyReplicas;        ///< tensor ranks that hold the same key/value head
  Communicator pipeline;           ///< the stages, in order
  Communicator ends;               ///< first and last stage, where both hold a tied embedding
  double communicationSeconds = 0; ///< spent inside the calls of the trainer, bubbles apart
  double bubbleSeconds = 0;        ///< waited for activations or gradients of a neighbouring stage
};

/// `ranks` maps the mesh's ranks to those of MPI_COMM_WORLD (normally the identity; a test runs several small worlds
/// in one job); `rank` is the caller's in the mesh. Collective over `ranks`.
/// Errors: Failure communicationError.
void createGroups(const Config& config, int rank, const std::vector<int>& ranks, GroupSet* groups);

/// Tensor ranks that hold the same key/value heads: tp/K where there are fewer heads than tensor ranks.
int keyReplicasOf(const Config& config);

/// The group of a partition that holds `rank`.
const std::vector<int>& groupOf(const Groups& groups, int rank);

}  // namespace internevo::trainer
