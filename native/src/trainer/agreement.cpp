#include "trainer/agreement.h"

#include <optional>

namespace internevo::trainer {

void agree(const Communicator& group, Workspace reduceWorkspace, const std::function<void()>& work) {
  std::optional<Problem> own;
  try {
    work();
  } catch (const AgreedFailure&) {
    throw;  // all ranks know already
  } catch (const Failure& failure) {
    own = failure.problem();
  } catch (const std::exception& error) {
    own = Problem{StatusCode::internal, error.what(), "", "", ""};
  }
  // The largest word names the lowest rank that failed, and its code.
  constexpr std::int64_t kCodes = 256;
  std::int64_t word =
      own ? (group.size() - group.index()) * kCodes + static_cast<std::int64_t>(own->code) : std::int64_t{0};
  require(group.allReduce({&word, DataType::int64}, 1, ReduceOperation::maximum, reduceWorkspace));
  if (word == 0) return;
  const std::int64_t failed = group.size() - word / kCodes;
  if (own && failed == group.index()) throw AgreedFailure(*own, true);
  throw AgreedFailure(
      {static_cast<StatusCode>(word % kCodes), "rank " + std::to_string(failed) + " failed", "", "", ""},
      false);
}

}  // namespace internevo::trainer
