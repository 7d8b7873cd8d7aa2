// The measured timeline of a run: what every rank did on each lane, as one file that Perfetto and chrome://tracing open.
#pragma once

#include <mpi.h>

#include <string>

#include "checkpoint/disk_room.h"
#include "internevo/activity.h"
#include "trainer/watchdog.h"

namespace internevo::trainer {

/// Nanoseconds to add to this rank's steady clock to have rank 0's: 0 on rank 0's host, else from the fastest of some round
/// trips. Collective over `comm`. Errors: Failure communicationError.
std::int64_t clockOffsetNanoseconds(MPI_Comm comm, bool sameHostAsFirst);

/// Gathers the events of all ranks and writes them on rank 0: "X" events with pid = rank and tid = 1 + lane, times in
/// microseconds from the first event; `args` has unit, microBatch and exposed. A rank that had no room for all its events
/// says how many it dropped. Collective over `comm`. Errors: Failure communicationError; checkpointError (on rank 0, once all
/// ranks have given theirs) when the file cannot be written, or would not leave the margin free: it is removed.
void writeTimeline(MPI_Comm comm, const Activity& activity, std::int64_t clockOffset,
                   const RankIdentity& identity, const std::string& path, const DiskMargin& leaveFree = {});

}  // namespace internevo::trainer
