// Errors that only some ranks see: all ranks learn of them at the same call, and one of them reports.
#pragma once

#include <functional>
#include <string>

#include "internevo/collectives.h"
#include "trainer/failure.h"

namespace internevo::trainer {

/// An error that is known to every rank. `reporter` is true on the one rank that writes the event.
class AgreedFailure : public Failure {
 public:
  AgreedFailure(Problem problem, bool reporter) : Failure(std::move(problem)), reporter_(reporter) {}
  bool reporter() const noexcept { return reporter_; }

 private:
  bool reporter_;
};

/// Runs `work` on every rank of the group, then tells all of them whether it failed anywhere. Collective.
/// Errors: AgreedFailure on every rank, with the problem of the lowest rank that failed (elsewhere only its code).
void agree(const Communicator& group, Workspace reduceWorkspace, const std::function<void()>& work);

}  // namespace internevo::trainer
