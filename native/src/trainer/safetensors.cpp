#include "trainer/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "trainer/failure.h"

namespace internevo::trainer {

namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Failure(StatusCode::checkpointError, path + " " + what);
}

/// A file that is hashed as it is written or read.
class HashedFile {
 public:
  HashedFile(std::string path, int flags) : path_(std::move(path)), file_(::open(path_.c_str(), flags | O_CLOEXEC, 0644)) {
    if (file_ < 0) refuse(path_, std::string("cannot be opened: ") + std::strerror(errno));
    hash_.reset(XXH3_createState());
    XXH3_64bits_reset(hash_.get());
  }
  ~HashedFile() {
    if (file_ >= 0) ::close(file_);
  }
  HashedFile(const HashedFile&) = delete;
  HashedFile& operator=(const HashedFile&) = delete;

  void write(const void* data, std::int64_t bytes) {
    XXH3_64bits_update(hash_.get(), data, static_cast<std::size_t>(bytes));
    const char* at = static_cast<const char*>(data);
    for (std::int64_t left = bytes; left > 0;) {
      const ssize_t done = ::write(file_, at, static_cast<std::size_t>(std::min(left, kPiece)));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) refuse(path_, std::string("cannot be written: ") + std::strerror(errno));
      at += done, left -= done;
    }
    bytes_ += bytes;
  }
  void read(void* data, std::int64_t bytes) {
    char* at = static_cast<char*>(data);
    for (std::int64_t left = bytes; left > 0;) {
      const ssize_t done = ::read(file_, at, static_cast<std::size_t>(std::min(left, kPiece)));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) refuse(path_, std::string("cannot be read: ") + std::strerror(errno));
      if (done == 0) refuse(path_, "is truncated");
      at += done, left -= done;
    }
    XXH3_64bits_update(hash_.get(), data, static_cast<std::size_t>(bytes));
  }
  std::int64_t size() const {
    struct stat info {};
    if (fstat(file_, &info) != 0) refuse(path_, std::string("cannot be read: ") + std::strerror(errno));
    return info.st_size;
  }
  FileSummary finishWriting() {
    if (fsync(file_) != 0) refuse(path_, std::string("cannot be flushed: ") + std::strerror(errno));
    const int closed = ::close(file_);
    file_ = -1;
    if (closed != 0) refuse(path_, std::string("cannot be closed: ") + std::strerror(errno));
    return {bytes_, XXH3_64bits_digest(hash_.get())};
  }
  std::uint64_t checksum() const { return XXH3_64bits_digest(hash_.get()); }

 private:
  static constexpr std::int64_t kPiece = std::int64_t{1} << 30;
  struct FreeHash {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::string path_;
  int file_;
  std::unique_ptr<XXH3_state_t, FreeHash> hash_;
  std::int64_t bytes_ = 0;
};

}  // namespace

FileSummary writeSafetensors(const std::string& path, const std::vector<SafetensorsEntry>& entries,
                             const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t offset = 0;
  std::vector<std::int64_t> sizes;
  for (const SafetensorsEntry& entry : entries) {
    sizes.push_back(4 * std::accumulate(entry.shape.begin(), entry.shape.end(), std::int64_t{1}, std::multiplies<>()));
    header[entry.name] = {{"dtype", "F32"}, {"shape", entry.shape}, {"data_offsets", {offset, offset + sizes.back()}}};
    offset += sizes.back();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t length = text.size();
  HashedFile file(path, O_WRONLY | O_CREAT | O_TRUNC);
  file.write(&length, sizeof length);
  file.write(text.data(), static_cast<std::int64_t>(text.size()));
  for (std::size_t i = 0; i < entries.size(); ++i) file.write(entries[i].data, sizes[i]);
  return file.finishWriting();
}

void readSafetensors(const std::string& path, const FileSummary& expected,
                     const std::vector<SafetensorsTarget>& targets) {
  HashedFile file(path, O_RDONLY);
  if (file.size() != expected.bytes) {
    refuse(path, "has " + std::to_string(file.size()) + " bytes; the manifest says " + std::to_string(expected.bytes));
  }
  std::uint64_t length = 0;
  file.read(&length, sizeof length);
  if (static_cast<std::int64_t>(length) < 0 || static_cast<std::int64_t>(length) > expected.bytes - 8) {
    refuse(path, "is damaged: its header cannot have " + std::to_string(length) + " bytes");
  }
  std::string text(length, ' ');
  file.read(text.data(), static_cast<std::int64_t>(length));
  const Json header = Json::parse(text, nullptr, false);
  std::int64_t offset = 0;
  for (const SafetensorsTarget& target : targets) {
    const bool sound = header.is_object() && header.contains(target.name) &&
                       header[target.name].value("dtype", "") == "F32" &&
                       header[target.name]["data_offsets"] == Json({offset, offset + 4 * target.elements});
    if (!sound) refuse(path, "is damaged: its header does not describe " + target.name + " as expected");
    offset += 4 * target.elements;
  }
  if (8 + static_cast<std::int64_t>(length) + offset != expected.bytes) {
    refuse(path, "is damaged: its tensors do not fill it");
  }
  for (const SafetensorsTarget& target : targets) file.read(target.data, 4 * target.elements);
  if (file.checksum() != expected.checksum) refuse(path, "is damaged: its checksum is not the manifest's");
}

void writeTextFile(const std::string& path, const std::string& text) {
  HashedFile file(path, O_WRONLY | O_CREAT | O_TRUNC);
  file.write(text.data(), static_cast<std::int64_t>(text.size()));
  file.finishWriting();
}

std::string readTextFile(const std::string& path) {
  HashedFile file(path, O_RDONLY);
  std::string text(static_cast<std::size_t>(file.size()), ' ');
  file.read(text.data(), static_cast<std::int64_t>(text.size()));
  return text;
}

void syncDirectory(const std::string& path) {
  const int directory = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = directory >= 0 && fsync(directory) == 0;
  const int error = errno;
  if (directory >= 0) ::close(directory);
  if (!synced) refuse(path, std::string("cannot be flushed: ") + std::strerror(error));
}

std::uint64_t checksumOf(const std::string& text) { return XXH3_64bits(text.data(), text.size()); }

}  // namespace internevo::trainer
