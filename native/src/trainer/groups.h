// The communicators of a rank, made from the plan's mesh.
#pragma once

#include "internevo/activity.h"
#include "internevo/collectives.h"
#include "trainer/clock.h"
#include "trainer/config.h"

namespace internevo::trainer {

struct GroupSet {
  Communicator world;    ///< all ranks of the run
  Communicator heads;    ///< Ulysses: neighbours that share a part of the sequence, and the heads
  Communicator context;  ///< ring attention: ranks with the same heads that share a sequence
  Communicator data;
  Communicator parameterShards;  ///< ps
  Communicator optimizerShards;  ///< oss
  Communicator replicas;         ///< the R/(ps·oss) ranks with the same optimizer shard
  Communicator tensor;           ///< tensor parallelism
  Communicator keyReplicas;      ///< tensor ranks that hold the same key/value head
  Communicator pipeline;         ///< the stages, in order
  Communicator ends;             ///< first and last stage, where both hold a tied embedding
  Activity* activity = nullptr;  ///< what this rank does now; never null once the trainer is made
  std::int32_t microBatch = -1;  ///< that the computing thread is at
  /// Of the computing thread: inside collectives, or waiting for those of the lane; bubbles apart.
  double exposedCommunicationSeconds = 0;
  double laneWaitSeconds = 0;  ///< of these, waiting for the lane
  double bubbleSeconds = 0;    ///< waited for activations or gradients of a neighbouring stage
};

/// The computing thread communicates, or waits for communication, as long as this lives. On a device, whose calls return at once, the time
/// is that of the computing stream, and is counted when the step settles.
class Exposed {
 public:
  Exposed(GroupSet& groups, const char* name, int unit = -1)
      : Exposed(groups, name, unit, &groups.exposedCommunicationSeconds) {}
  Exposed(GroupSet& groups, const char* name, int unit, double* counter, double* second = nullptr)
      : timed_(hostCounter(groups, counter)),
        timedToo_(hostCounter(groups, second)),
        scope_(*groups.activity, ActivityLane::exposed, name, unit, groups.microBatch, true,
               {counter, second}) {}

 private:
  static double* hostCounter(const GroupSet& groups, double* counter) {
    return groups.activity->onDevice() ? nullptr : counter;
  }

  const Timed timed_, timedToo_;
  const Activity::Scope scope_;
};

/// The first of the groups: all ranks of the run, by MPI.
void createWorld(const Config& config, const std::vector<int>& ranks, GroupSet* groups);

/// Makes the communication of a device ready; null: nothing to do. Collective over `world`.
/// Errors: AgreedFailure badConfig; Failure communicationError.
void startDeviceGroups(const Communicator& world, Workspace scratch, DeviceGroups* device);

/// `ranks` maps the mesh's ranks to those of MPI_COMM_WORLD (normally the identity; a test runs several small worlds
/// in one job); `rank` is the caller's in the mesh. Collective over `ranks`.
/// Errors: Failure communicationError.
/// `device` null: the memory is the process's. Else all groups but `world`, whose words are the program's own, are the device's,
/// which must have been started.
void createGroups(const Config& config, int rank, const std::vector<int>& ranks, DeviceGroups* device,
                  GroupSet* groups);

/// Tensor ranks that hold the same key/value heads: tp/K where there are fewer heads than tensor ranks.
int keyReplicasOf(const Config& config);

/// The group of a partition that holds `rank`.
const std::vector<int>& groupOf(const Groups& groups, int rank);

}  // namespace internevo::trainer
