#include "trainer/data_source.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "checkpoint/file.h"
#include "trainer/failure.h"

namespace internevo::trainer {

void refuseData(const std::string& path, const std::string& what, const std::string& remedy) {
  throw Failure(Problem{StatusCode::dataError, "token file " + path + " " + what, "data.path",
                        nlohmann::json(path).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                        remedy});
}

void refuseToken(const std::string& path, const std::string& token, std::int64_t byte,
                 std::int64_t vocabularySize) {
  refuseData(path,
             "has token " + token + " at byte " + std::to_string(byte) + "; model.vocabularySize is " +
                 std::to_string(vocabularySize),
             "raise model.vocabularySize, or tokenize with a smaller vocabulary");
}

std::string digestOf(const std::vector<const MappedFile*>& files) {
  constexpr std::int64_t kBlock = 4096, kMost = 1024;
  std::string parts;
  for (const MappedFile* file : files) {
    parts += std::to_string(file->bytes()) + "\n";
    const std::int64_t blocks = (file->bytes() + kBlock - 1) / kBlock, taken = std::min(blocks, kMost);
    for (std::int64_t i = 0; i < taken; ++i) {
      // Divided first, so that no file is too large for the product.
      const std::int64_t step = taken > 1 ? (blocks - 1) / (taken - 1) : 0,
                         rest = taken > 1 ? (blocks - 1) % (taken - 1) : 0;
      const std::int64_t begin = kBlock * (i * step + (taken > 1 ? i * rest / (taken - 1) : 0));
      const std::int64_t bytes = std::min(kBlock, file->bytes() - begin);
      parts += hexOf(checksumOf(
          std::string(reinterpret_cast<const char*>(file->data()) + begin, static_cast<std::size_t>(bytes))));
    }
  }
  return "xxh3:" + hexOf(checksumOf(parts));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<unsigned char*>(data_), static_cast<std::size_t>(bytes_));
}

void MappedFile::open(const std::string& path, std::int64_t minimumBytes) {
  path_ = path;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info {};
  if (file < 0 || fstat(file, &info) != 0) {
    const std::string reason = std::strerror(errno);
    if (file >= 0) ::close(file);
    refuseData(path, "cannot be read: " + reason, "give a readable token file");
  }
  bytes_ = info.st_size;
  void* map = MAP_FAILED;
  if (S_ISREG(info.st_mode) && bytes_ >= minimumBytes && bytes_ > 0) {
    map = mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ, MAP_SHARED, file, 0);
  }
  ::close(file);
  if (map == MAP_FAILED) {
    refuseData(path,
               "has " + std::to_string(bytes_) + " bytes; a file with a header of at least " +
                   std::to_string(minimumBytes) + " is expected",
               kWriteAgain);
  }
  data_ = static_cast<const unsigned char*>(map);
}

namespace {

bool endsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

DataConfig::Format formatOf(const DataConfig& config) {
  using Format = DataConfig::Format;
  const std::string& path = config.path;
  if (config.format != Format::byExtension) return config.format;
  if (endsWith(path, ".idx")) return Format::megatron;
  if (!endsWith(path, ".bin")) return Format::own;
  const bool megatron = access((path.substr(0, path.size() - 4) + ".idx").c_str(), F_OK) == 0;
  const bool internevo = access((path + ".meta").c_str(), F_OK) == 0;
  if (megatron != internevo) return megatron ? Format::megatron : Format::internevo;
  refuseData(path,
             megatron ? "has both an .idx and a .meta file beside it"
                      : "has neither an .idx nor a .bin.meta file beside it",
             "set data.format to megatron or internevo, and put the index beside the file");
}

}  // namespace

std::unique_ptr<TokenSource> openTokenSource(const DataConfig& config, std::int64_t vocabularySize) {
  switch (formatOf(config)) {
    case DataConfig::Format::megatron: return openMegatron(config.path, vocabularySize);
    case DataConfig::Format::internevo: return openInternevo(config.path, vocabularySize);
    default: return openOwn(config.path, vocabularySize);
  }
}

}  // namespace internevo::trainer
