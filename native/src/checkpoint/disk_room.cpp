#include "checkpoint/disk_room.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>

#include "checkpoint/file.h"

namespace internevo::trainer {

namespace fs = std::filesystem;

namespace {

/// The nearest directory above `path` that is there.
std::string directoryAbove(const std::string& path) {
  std::error_code ignored;
  fs::path directory = fs::absolute(path, ignored).parent_path();
  while (directory.has_relative_path() && !fs::exists(directory, ignored))
    directory = directory.parent_path();
  return directory.string();
}

}  // namespace

void requireRoom(const std::string& path, std::int64_t bytes, const DiskMargin& margin) {
  if (margin.bytes <= 0) return;
  struct statvfs info {};
  if (statvfs(directoryAbove(path).c_str(), &info) != 0) return;
  const auto block = static_cast<std::int64_t>(info.f_frsize);
  const auto size = static_cast<std::int64_t>(info.f_blocks) * block,
             left = static_cast<std::int64_t>(info.f_bavail) * block;
  const auto kept =
      std::min(static_cast<std::int64_t>(margin.share * static_cast<double>(size)), margin.bytes);
  if (bytes + kept <= left) return;
  const std::string needed = bytes > 0 ? "it needs " + std::to_string(bytes) + " bytes, and " : "";
  refuseFile(path,
             "is not written: " + needed + "the file system has " + std::to_string(left) +
                 " free, of which " + std::to_string(kept) + " stay free for everything else",
             kMakeRoom);
}

}  // namespace internevo::trainer
