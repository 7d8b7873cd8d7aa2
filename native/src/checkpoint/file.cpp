#include "checkpoint/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "trainer/failure.h"

namespace internevo::trainer {

namespace {

namespace fs = std::filesystem;
constexpr std::int64_t kPiece = std::int64_t{8} << 20;
/// Where no room can be reserved: after so many bytes the margin is looked at again.
constexpr std::int64_t kLook = std::int64_t{64} << 20;

std::string parentOf(const std::string& path) { return fs::path(path).parent_path().string(); }

bool isFull(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

constexpr const char* kWritable = "give a directory that can be written";

/// What the file system of `path` has left; empty when unknown.
std::string roomAt(const std::string& path) {
  struct statvfs info {};
  if (statvfs(parentOf(path).c_str(), &info) != 0) return "";
  if (info.f_files > 0 && info.f_favail == 0) return ", the file system has no room for another file";
  const auto left = static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
  return ", the file system has " + std::to_string(left) + " free";
}

}  // namespace

void refuseFile(const std::string& path, const std::string& what, const std::string& remedy) {
  throw Failure(Problem{StatusCode::checkpointError, path + " " + what, "checkpoint",
                        nlohmann::json(path).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                        remedy});
}

void withRemedy(const std::function<std::string()>& remedy, const std::function<void()>& work) {
  try {
    work();
  } catch (const Failure& failure) {
    Problem problem = failure.problem();
    if (problem.code != StatusCode::checkpointError || !problem.remedy.empty()) throw;
    problem.remedy = remedy();
    throw Failure(std::move(problem));
  }
}

struct FileWriter::Hash {
  Hash() : state(XXH3_createState()) { XXH3_64bits_reset(state); }
  ~Hash() { XXH3_freeState(state); }
  XXH3_state_t* state;
};

FileWriter::FileWriter(std::string path, std::int64_t bytes, const DiskMargin& margin)
    : path_(std::move(path)), needed_(bytes), margin_(margin), hash_(std::make_unique<Hash>()) {
  requireRoom(path_, needed_, margin_);
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file_ < 0) refuse("cannot be created", errno);
  // Only this call can tell a full disk before the work; where it is not supported, write() will tell.
  reserved_ = needed_ > 0 && fallocate(file_, 0, 0, needed_) == 0;
  if (const int error = errno; needed_ > 0 && !reserved_ && isFull(error)) {
    drop();
    refuse("cannot be written", error);
  }
  // Others may have reserved at the same moment: of all who find the margin taken, each steps back.
  if (reserved_) keepMargin(0);
}

FileWriter::~FileWriter() {
  if (file_ >= 0) ::close(file_);
}

void FileWriter::keepMargin(std::int64_t bytes) {
  try {
    requireRoom(path_, bytes, margin_);
  } catch (const Failure&) {
    drop();
    throw;
  }
}

void FileWriter::drop() {
  ::unlink(path_.c_str());
  ::close(file_);
  file_ = -1;
}

void FileWriter::refuse(const char* what, int error) const {
  const bool full = isFull(error);
  refuseFile(path_,
             std::string(what) + ": " + std::strerror(error) +
                 (full ? "; it needs " + std::to_string(needed_) + " bytes" + roomAt(path_) : ""),
             full ? kMakeRoom : kWritable);
}

void FileWriter::write(const void* data, std::int64_t bytes) {
  const char* at = static_cast<const char*>(data);
  for (std::int64_t left = bytes; left > 0;) {
    const std::int64_t piece = std::min(left, kPiece);
    const std::int64_t before = written_ + bytes - left;
    if (!reserved_ && (before + piece) / kLook > before / kLook) keepMargin(needed_ - before);
    XXH3_64bits_update(hash_->state, at, static_cast<std::size_t>(piece));
    for (std::int64_t open = piece; open > 0;) {
      const ssize_t done = ::write(file_, at, static_cast<std::size_t>(open));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) refuse("cannot be written", errno);
      at += done, open -= done;
    }
    left -= piece;
  }
  written_ += bytes;
}

FileSummary FileWriter::finish() {
  if (fsync(file_) != 0) refuse("cannot be flushed", errno);
  const int closed = ::close(file_);
  file_ = -1;
  if (closed != 0) refuse("cannot be closed", errno);
  return {written_, XXH3_64bits_digest(hash_->state)};
}

FileReader::FileReader(std::string path) : path_(std::move(path)) {
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info {};
  if (file_ < 0 || fstat(file_, &info) != 0 || !S_ISREG(info.st_mode)) {
    const std::string cause = file_ >= 0 && S_ISDIR(info.st_mode) ? "is a directory" : std::strerror(errno);
    if (file_ >= 0) ::close(file_);
    refuseFile(path_, "cannot be opened: " + cause);
  }
  bytes_ = info.st_size;
}

FileReader::~FileReader() {
  if (file_ >= 0) ::close(file_);
}

FileReader::FileReader(FileReader&& other) noexcept
    : path_(std::move(other.path_)), bytes_(other.bytes_), file_(other.file_) {
  other.file_ = -1;
}

void FileReader::read(std::int64_t offset, void* data, std::int64_t bytes) const {
  char* at = static_cast<char*>(data);
  for (std::int64_t left = bytes; left > 0;) {
    const ssize_t done = ::pread(file_, at, static_cast<std::size_t>(std::min(left, kPiece)), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) refuseFile(path_, std::string("cannot be read: ") + std::strerror(errno));
    if (done == 0) refuseFile(path_, "is truncated: it ends at byte " + std::to_string(offset));
    at += done, left -= done, offset += done;
  }
}

void verifyFile(const std::string& path, const FileSummary& expected, std::int64_t* progress) {
  const FileReader file(path);
  if (file.bytes() != expected.bytes) {
    refuseFile(path, std::string(file.bytes() < expected.bytes ? "is truncated" : "is damaged") +
                         ": it has " + std::to_string(file.bytes()) + " bytes; the manifest says " +
                         std::to_string(expected.bytes));
  }
  std::vector<char> buffer(static_cast<std::size_t>(std::min(expected.bytes, kPiece)));
  XXH3_state_t* const state = XXH3_createState();
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> owner(state, XXH3_freeState);
  XXH3_64bits_reset(state);
  for (std::int64_t at = 0; at < expected.bytes;) {
    const std::int64_t piece = std::min(kPiece, expected.bytes - at);
    file.read(at, buffer.data(), piece);
    XXH3_64bits_update(state, buffer.data(), static_cast<std::size_t>(piece));
    at += piece;
    if (progress != nullptr) *progress += piece;
  }
  if (XXH3_64bits_digest(state) != expected.checksum) {
    refuseFile(path, "is damaged: its checksum is not the manifest's");
  }
}

FileSummary writeTextFile(const std::string& path, const std::string& text) {
  FileWriter file(path, static_cast<std::int64_t>(text.size()));
  file.write(text.data(), static_cast<std::int64_t>(text.size()));
  return file.finish();
}

std::string readTextFile(const std::string& path) {
  const FileReader file(path);
  std::string text(static_cast<std::size_t>(file.bytes()), ' ');
  file.read(0, text.data(), file.bytes());
  return text;
}

void syncDirectory(const std::string& path) {
  const int directory = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = directory >= 0 && fsync(directory) == 0;
  const int error = errno;
  if (directory >= 0) ::close(directory);
  if (!synced)
    refuseFile(path, std::string("cannot be flushed: ") + std::strerror(error),
               isFull(error) ? kMakeRoom : kWritable);
}

void createDirectories(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return;
  const bool full = isFull(error.value());
  refuseFile(path, "cannot be created: " + error.message() + (full ? roomAt(path) : ""),
             full ? kMakeRoom : kWritable);
}

void publishDirectory(const std::string& temporary, const std::string& path) {
  std::error_code ignored;
  const auto refuse = [&](int error) {
    refuseFile(path, std::string("cannot be put in place: ") + std::strerror(error),
               isFull(error) ? kMakeRoom : "give a directory that can be written, or remove what is there");
  };
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    if (errno != ENOTEMPTY && errno != EEXIST) refuse(errno);
    if (renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) != 0) {
      if (errno != EINVAL && errno != ENOSYS) refuse(errno);
      // A file system that cannot exchange: for a moment neither is at `path`.
      const std::string old = path + ".removed.tmp";
      fs::remove_all(old, ignored);
      if (::rename(path.c_str(), old.c_str()) != 0 || ::rename(temporary.c_str(), path.c_str()) != 0)
        refuse(errno);
      fs::remove_all(old, ignored);
    }
    fs::remove_all(temporary, ignored);  // what was there before; left-overs are cleaned at the next start
  }
  syncDirectory(parentOf(fs::absolute(path).string()));
}

std::uint64_t checksumOf(const std::string& text) { return XXH3_64bits(text.data(), text.size()); }

std::string hexOf(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::uint64_t checksumOfHex(const std::string& text, const std::string& path) {
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos) {
    refuseFile(path, "is damaged: " + text.substr(0, 40) + " is no checksum");
  }
  return std::stoull(text, nullptr, 16);
}

}  // namespace internevo::trainer
