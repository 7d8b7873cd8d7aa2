#include <cstdio>
#include <cstdlib>

#include "ops/test_backend.h"

namespace internevo::test {

std::unique_ptr<Backend> createTestBackend(int threads) {
  std::unique_ptr<Backend> backend;
  if (const Status status = openCpuBackend(threads, &backend); !status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    std::abort();
  }
  return backend;
}

bool promisesOfTheHost() { return true; }

}  // namespace internevo::test
