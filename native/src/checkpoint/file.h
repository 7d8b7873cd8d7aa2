// Files of checkpoints: written once and flushed, read at offsets. Errors are Failure checkpointError and name the file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "checkpoint/disk_room.h"

namespace internevo::trainer {

struct FileSummary {
  std::int64_t bytes = 0;
  std::uint64_t checksum = 0;  ///< XXH3, 64 bits, of the whole file
};

/// A new file, hashed as it is written.
class FileWriter {
 public:
  /// Reserves `bytes` where the file system can, so that a full disk is seen before anything is written. What would take
  /// from the margin is refused, also when others write meanwhile; then the file is gone again.
  FileWriter(std::string path, std::int64_t bytes, const DiskMargin& margin = {});
  ~FileWriter();  ///< closes; the file is of no use unless finish() returned
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* data, std::int64_t bytes);
  /// Flushes to the device and closes.
  FileSummary finish();

 private:
  [[noreturn]] void refuse(const char* what, int error) const;
  void keepMargin(std::int64_t bytes);
  void drop();
  struct Hash;
  std::string path_;
  std::int64_t needed_, written_ = 0;
  const DiskMargin margin_;
  bool reserved_ = false;
  int file_ = -1;
  std::unique_ptr<Hash> hash_;
};

class FileReader {
 public:
  explicit FileReader(std::string path);
  ~FileReader();
  FileReader(FileReader&&) noexcept;
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  const std::string& path() const { return path_; }
  std::int64_t bytes() const { return bytes_; }
  /// Exactly `bytes` bytes from `offset`. Errors: also when the file ends before them.
  void read(std::int64_t offset, void* data, std::int64_t bytes) const;

 private:
  std::string path_;
  std::int64_t bytes_ = 0;
  int file_ = -1;
};

/// Reads the whole file in pieces. Errors: another size or checksum than expected ("is truncated", "is damaged").
/// Adds the bytes it has read to *progress as it goes, when given.
void verifyFile(const std::string& path, const FileSummary& expected, std::int64_t* progress = nullptr);

/// Writes text and flushes; reads a whole file; flushes a directory's entries.
FileSummary writeTextFile(const std::string& path, const std::string& text);
std::string readTextFile(const std::string& path);
void syncDirectory(const std::string& path);

/// Creates a directory and those above it. Safe when several ranks do it at once.
void createDirectories(const std::string& path);
/// Puts `temporary` in the place of `path`. When there is something at `path` the two change places in one move, and
/// what was there is then removed: at every moment one of the two is whole at `path` (but for file systems that cannot
/// exchange names).
void publishDirectory(const std::string& temporary, const std::string& path);

std::uint64_t checksumOf(const std::string& text);
std::string hexOf(std::uint64_t value);  ///< 16 digits
/// Errors: Failure checkpointError naming `path`, when it is not 16 hexadecimal digits.
std::uint64_t checksumOfHex(const std::string& text, const std::string& path);

/// What to do where a file system is full.
inline constexpr const char* kMakeRoom =
    "free space on that file system, keep fewer checkpoints, or give another directory";

/// Throws Failure checkpointError: `path` `what`, with the path as the value. Without a remedy: whoever knows what the
/// file is for adds one by withRemedy.
[[noreturn]] void refuseFile(const std::string& path, const std::string& what,
                             const std::string& remedy = "");

/// Calls `work`; a Failure checkpointError of it that names no remedy gets that of `remedy`.
void withRemedy(const std::function<std::string()>& remedy, const std::function<void()>& work);

}  // namespace internevo::trainer
