// Who gives out the device's memory.
#pragma once

#include <cstddef>

namespace internevo::cuda {

/// A library's calls, which answer 0 where they succeed; null: the device's own. One for a backend, its memory and its groups.
struct Allocation {
  int (*allocate)(void**, std::size_t) = nullptr;
  int (*release)(void*) = nullptr;
};

}  // namespace internevo::cuda
