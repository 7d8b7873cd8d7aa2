// The backend that a program of these tests is about: each is linked with one.
#pragma once

#include <memory>

#include "internevo/backend.h"

namespace internevo::test {

/// Never null. `threads`: what may not change a bit. CPU: threads of a call. Model of a GPU: the order in which a block's threads
/// take turns.
std::unique_ptr<Backend> createTestBackend(int threads);

/// Products of two types, sums over rows in blocks of kSumBlockRows, and a call's data (tokens, targets, positions, first keys)
/// checked in the call: what only a backend on the host promises. cuda/refusals_test.cpp has what a device does instead.
bool promisesOfTheHost();
#define INTERNEVO_HOST_ONLY() \
  if (!promisesOfTheHost()) GTEST_SKIP() << "only a backend on the host promises this"

}  // namespace internevo::test
