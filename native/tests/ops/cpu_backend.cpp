#include "ops/test_backend.h"

namespace internevo::test {

std::unique_ptr<Backend> createTestBackend(int threads) { return createCpuBackend(threads); }

bool promisesOfTheHost() { return true; }

}  // namespace internevo::test
