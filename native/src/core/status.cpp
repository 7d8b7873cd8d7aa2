#include "internevo/status.h"

namespace internevo {

const char* statusCodeName(StatusCode code) noexcept {
  switch (code) {
    case StatusCode::ok: return "ok";
    case StatusCode::badConfig: return "bad_config";
    case StatusCode::planUnsupported: return "plan_unsupported";
    case StatusCode::outOfMemory: return "out_of_memory";
    case StatusCode::dataError: return "data_error";
    case StatusCode::checkpointError: return "checkpoint_error";
    case StatusCode::communicationError: return "communication_error";
    case StatusCode::internal: return "internal";
    case StatusCode::notFinite: return "not_finite";
  }
  return "internal";
}

}  // namespace internevo
