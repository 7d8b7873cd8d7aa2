#include "trainer/token_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "trainer/failure.h"
#include "trainer/random.h"

namespace internevo::trainer {

namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& what, const std::string& remedy) {
  throw Failure(Problem{StatusCode::dataError, "token file " + path + " " + what, "data.path",
                        nlohmann::json(path).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), remedy});
}

template <typename T>
T load(const unsigned char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

constexpr const char* kWrite = "write the file again";

}  // namespace

TokenFile::~TokenFile() {
  if (map_ != nullptr) munmap(const_cast<unsigned char*>(map_), static_cast<std::size_t>(mapBytes_));
}

void TokenFile::open(const std::string& path, std::int64_t vocabularySize, std::int64_t sequenceLengthTokens) {
  path_ = path, vocabularySize_ = vocabularySize, sequenceLength_ = sequenceLengthTokens;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info {};
  if (file < 0 || fstat(file, &info) != 0) {
    const std::string reason = std::strerror(errno);
    if (file >= 0) ::close(file);
    refuse(path, "cannot be read: " + reason, "give a readable token file");
  }
  mapBytes_ = info.st_size;
  void* map = MAP_FAILED;
  if (S_ISREG(info.st_mode) && mapBytes_ >= kHeaderBytes) {
    map = mmap(nullptr, static_cast<std::size_t>(mapBytes_), PROT_READ, MAP_SHARED, file, 0);
  }
  ::close(file);
  if (map == MAP_FAILED) {
    refuse(path, "has " + std::to_string(mapBytes_) + " bytes; a header of " + std::to_string(kHeaderBytes) + " is expected",
           kWrite);
  }
  map_ = static_cast<const unsigned char*>(map);
  if (std::memcmp(map_, "IEVOTOK", 8) != 0) refuse(path, "does not begin with IEVOTOK", "give a token file");
  const auto version = load<std::uint32_t>(map_ + 8), width = load<std::uint32_t>(map_ + 12);
  const auto count = load<std::uint64_t>(map_ + 16);
  const auto vocabulary = load<std::uint32_t>(map_ + 24);
  if (version != 1) refuse(path, "has version " + std::to_string(version) + "; 1 is expected", kWrite);
  if (width != 2 && width != 4) {
    refuse(path, "has " + std::to_string(width) + " bytes a token; 2 or 4 is expected", kWrite);
  }
  if (count > (std::uint64_t{1} << 60)) refuse(path, "names " + std::to_string(count) + " tokens, too many", kWrite);
  tokenCount_ = static_cast<std::int64_t>(count), bytesPerToken_ = width;
  const std::int64_t expected = kHeaderBytes + tokenCount_ * bytesPerToken_;
  if (mapBytes_ != expected) {
    refuse(path, "has " + std::to_string(mapBytes_) + " bytes; its header says " + std::to_string(expected) + " (" +
                     std::to_string(tokenCount_) + " tokens of " + std::to_string(width) + " bytes): it is " +
                     (mapBytes_ < expected ? "truncated" : "too long"),
           kWrite);
  }
  if (static_cast<std::int64_t>(vocabulary) > vocabularySize) {
    refuse(path, "has a vocabulary of " + std::to_string(vocabulary) + "; model.vocabularySize is " +
                     std::to_string(vocabularySize),
           "raise model.vocabularySize, or tokenize with a smaller vocabulary");
  }
  if (tokenCount_ < sequenceLength_ + 1) {
    refuse(path, "has " + std::to_string(tokenCount_) + " tokens; one sequence needs " +
                     std::to_string(sequenceLength_ + 1),
           "give more data or a shorter sequenceLengthTokens");
  }
}

std::int32_t TokenFile::tokenAt(std::int64_t index) const {
  const unsigned char* const at = map_ + kHeaderBytes + index * bytesPerToken_;
  const std::uint32_t token = bytesPerToken_ == 2 ? load<std::uint16_t>(at) : load<std::uint32_t>(at);
  if (static_cast<std::int64_t>(token) >= vocabularySize_) {
    refuse(path_, "has token " + std::to_string(token) + " at byte " +
                      std::to_string(kHeaderBytes + index * bytesPerToken_) + "; model.vocabularySize is " +
                      std::to_string(vocabularySize_),
           "raise model.vocabularySize, or tokenize with a smaller vocabulary");
  }
  return static_cast<std::int32_t>(token);
}

void TokenFile::read(std::int64_t sequence, std::int64_t offset, std::int64_t count, std::int32_t* tokens,
                     std::int32_t* targets) const {
  const std::int64_t first = sequence * sequenceLength_ + offset;
  std::int32_t token = tokenAt(first);
  for (std::int64_t i = 0; i < count; ++i) {
    tokens[i] = token;
    token = tokenAt(first + i + 1);
    targets[i] = token;
  }
}

std::int64_t sequenceOfDraw(std::uint64_t seed, std::int64_t sequenceCount, std::int64_t draw) {
  const auto count = static_cast<std::uint64_t>(sequenceCount), at = static_cast<std::uint64_t>(draw);
  const std::uint64_t key = streamKey(seed, "data") + mix64(at / count);
  return static_cast<std::int64_t>(permute(key, count, at % count));
}

}  // namespace internevo::trainer
