// What a product asks memory for while it computes.
#pragma once

#include <cstdint>

namespace internevo::cpu {

enum class For { reading, writing };

/// Asks memory for `rows` rows that come next, a little at a time: more would fill its queue, and the products would wait
/// behind it. To be read: into the second cache; to be written: into the first.
template <For use>
class Ahead {
 public:
  Ahead() = default;
  Ahead(const void* first, std::int64_t rows, std::int64_t strideBytes, std::int64_t rowBytes)
      : row_(static_cast<const char*>(first)), rows_(rows), stride_(strideBytes), bytes_(rowBytes) {}

  void ask(int lines) {
    for (int line = 0; line < lines && rows_ > 0; ++line) {
      if (use == For::reading)
        __builtin_prefetch(row_ + at_, 0, 2);
      else
        __builtin_prefetch(row_ + at_, 1, 3);
      at_ += 64;
      if (at_ < bytes_) continue;
      at_ = 0;
      row_ += stride_;
      --rows_;
    }
  }

 private:
  const char* row_ = nullptr;
  std::int64_t rows_ = 0, stride_ = 0, bytes_ = 0, at_ = 0;
};

}  // namespace internevo::cpu
