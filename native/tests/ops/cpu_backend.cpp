#include "ops/test_backend.h"

namespace internevo::test {

std::unique_ptr<Backend> createTestBackend(int threads) { return createCpuBackend(threads); }

bool roundsLogitGradients() { return false; }

}  // namespace internevo::test
