// The backend on the model with attention on the kernels of sm_90a.
#include <cstdlib>

#include "emulator/launch_model.h"
#include "emulator/model_backend.h"
#include "ops/test_backend.h"

namespace internevo::test {

std::unique_ptr<Backend> createTestBackend(int threads) {
  cuda::model::setThreadOrder(threads - 1);
  setenv("INTERNEVO_CUDA_ATTENTION", "warpgroup", 1);
  return cuda::createModelBackend(false);
}

bool promisesOfTheHost() { return false; }

}  // namespace internevo::test
