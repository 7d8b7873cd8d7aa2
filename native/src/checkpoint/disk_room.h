// Room on file systems. What is large is written only where it leaves room for everything else that the file system is for.
#pragma once

#include <cstdint>
#include <string>

namespace internevo::trainer {

/// What stays free of a file system: this share of it, and no more than the bytes. By default nothing.
struct DiskMargin {
  double share = 0;
  std::int64_t bytes = 0;
};

/// Throws Failure checkpointError where `bytes` more for `path` would not leave the margin free; without a margin, and where
/// the file system does not say what it has, nothing. The message has all three figures, the remedy what makes room.
void requireRoom(const std::string& path, std::int64_t bytes, const DiskMargin& margin);

}  // namespace internevo::trainer
