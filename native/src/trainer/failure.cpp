#include "trainer/failure.h"

#include "protocol/protocol.h"

namespace internevo::trainer {

int exitCodeOf(StatusCode code) noexcept {
  switch (code) {
    case StatusCode::ok: return protocol::exitDone;
    case StatusCode::badConfig:
    case StatusCode::planUnsupported: return protocol::exitBadConfig;
    case StatusCode::outOfMemory: return protocol::exitOutOfMemory;
    case StatusCode::dataError: return protocol::exitData;
    case StatusCode::checkpointError: return protocol::exitCheckpoint;
    case StatusCode::communicationError: return protocol::exitCommunication;
    case StatusCode::internal:
    case StatusCode::notFinite: return protocol::exitInternal;
  }
  return protocol::exitInternal;
}

}  // namespace internevo::trainer
