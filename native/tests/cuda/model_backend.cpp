#include "emulator/model_backend.h"
#include "emulator/launch_model.h"
#include "ops/test_backend.h"

namespace internevo::test {

std::unique_ptr<Backend> createTestBackend(int threads) {
  cuda::model::setThreadOrder(threads - 1);
  return cuda::createModelBackend(false);
}

bool promisesOfTheHost() { return false; }

}  // namespace internevo::test
