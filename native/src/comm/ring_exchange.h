// One message to the next rank of an ordered group and one from the previous, while the caller computes.
#pragma once

#include <vector>

#include "internevo/collectives.h"
#include "internevo/lane.h"

namespace internevo {

/// One exchange at a time; several objects with different tags may be under way at once. MPI has no progress of its own,
/// so messages move during the caller's computation only with a lane, whose thread then drives them; without one they
/// move when the caller is inside MPI. With a lane, the communicator belongs to that lane between begin and finish.
class RingExchange {
 public:
  /// maximumBytes: the longest message.
  RingExchange(const Communicator& group, int tag, std::int64_t maximumBytes, Lane* lane);

  /// Starts `bytes` from `out` to the next rank and from the previous rank to `in`. `out` may be read meanwhile.
  /// Every rank of the group makes the same calls. Errors: badConfig for an exchange that is not finished, or too long.
  Status begin(const void* out, void* in, std::int64_t bytes);
  /// Blocks until both are done. Errors: communicationError.
  Status finish();
  /// Without a lane a device's messages are on the stream of the caller of begin, and there is nothing to finish.
  bool travelsAtBegin() const { return lane_ == nullptr && group_.device() != nullptr; }

 private:
  Status post();
  Status wait();

  const Communicator& group_;
  int tag_, posted_ = 0;
  std::int64_t maximumBytes_, bytes_ = 0;
  Lane* lane_;
  Lane::Ticket ticket_ = 0;
  const std::byte* out_ = nullptr;
  std::byte* in_ = nullptr;
  bool underWay_ = false;
  std::vector<MPI_Request> requests_;
};

}  // namespace internevo
