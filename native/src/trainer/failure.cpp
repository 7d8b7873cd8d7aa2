#include "trainer/failure.h"

namespace internevo::trainer {

int exitCodeOf(StatusCode code) noexcept {
  switch (code) {
    case StatusCode::ok: return 0;
    case StatusCode::badConfig:
    case StatusCode::planUnsupported: return 2;
    case StatusCode::outOfMemory: return 3;
    case StatusCode::dataError: return 4;
    case StatusCode::checkpointError: return 5;
    case StatusCode::communicationError: return 6;
    case StatusCode::internal: return 70;
  }
  return 70;
}

}  // namespace internevo::trainer
