// Where tokens come from: one stream of tokens, cut into documents where the source knows them. One reader a format.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor_sizes/executor_sizes.h"

namespace internevo::trainer {

struct DataConfig {
  enum class Format { byExtension, own, megatron, internevo };
  enum class Packing { none, documents };

  /// A file of a mixture.
  struct Source {
    std::string path;
    Format format = Format::byExtension;
    std::int64_t share = 1;  ///< of the sequences: so many of the sum of all shares
  };

  std::string path;  ///< the only file, where there are no `sources`
  Format format = Format::byExtension;
  std::vector<Source> sources{};
  Packing packing = Packing::none;  ///< documents: attention, positions and losses stay inside a document
  std::optional<std::int64_t> endOfDocumentToken{};  ///< ends a document; instead of the file's own index
  std::int64_t maxDocumentsPerSequence = sizes::documentsPerSequence;
};

/// A file in memory for as long as the object lives.
class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// Errors: Failure dataError naming the file: not readable, not a regular file, shorter than `minimumBytes`.
  void open(const std::string& path, std::int64_t minimumBytes);

  const std::string& path() const { return path_; }
  std::int64_t bytes() const { return bytes_; }
  const unsigned char* data() const { return data_; }
  /// A little-endian number at a byte, aligned or not.
  template <typename T>
  T load(std::int64_t at) const {
    T value;
    std::memcpy(&value, data_ + at, sizeof value);
    return value;
  }

 private:
  std::string path_;
  const unsigned char* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  TokenSource() = default;
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;

  /// File that holds the tokens.
  virtual const std::string& path() const = 0;
  /// All files that are read, in an order that does not change.
  virtual std::vector<const MappedFile*> files() const = 0;
  virtual std::int64_t tokenCount() const = 0;
  /// Tokens [first, first + count). Errors: Failure dataError naming file, byte offset and value of a token outside the
  /// vocabulary, or what is damaged.
  virtual void read(std::int64_t first, std::int64_t count, std::int32_t* tokens) const = 0;
  virtual bool knowsDocuments() const = 0;
  /// First token after `position` that starts a document; tokenCount() when there is none. Needs knowsDocuments().
  virtual std::int64_t nextDocumentStart(std::int64_t position) const = 0;
};

/// Opens a file and checks all of it but the tokens themselves: header, sizes, offsets that ascend, types.
/// Formats: own (see data_own.cpp); megatron: NAME.bin with NAME.idx, path names either; internevo: NAME.bin (a JSON line
/// for each document) with NAME.bin.meta. By extension: .idx is megatron, .bin what lies beside it, everything else own.
/// Errors: Failure dataError naming file, byte offset, what was found and what was expected.
std::unique_ptr<TokenSource> openTokenSource(const DataConfig& config, std::int64_t vocabularySize);

/// Tells content apart: a hash of the length of each file and of up to 1,024 blocks of 4 KiB of it, evenly over the file,
/// the first and the last among them. A change between the blocks of a large file is not seen.
std::string digestOf(const std::vector<const MappedFile*>& files);

// ---- one for each format -------------------------------------------------------------------------------------------

std::unique_ptr<TokenSource> openOwn(const std::string& path, std::int64_t vocabularySize);
std::unique_ptr<TokenSource> openMegatron(const std::string& path, std::int64_t vocabularySize);
std::unique_ptr<TokenSource> openInternevo(const std::string& path, std::int64_t vocabularySize);

/// Throws the dataError "token file PATH WHAT".
[[noreturn]] void refuseData(const std::string& path, const std::string& what, const std::string& remedy);
[[noreturn]] void refuseToken(const std::string& path, const std::string& token, std::int64_t byte,
                              std::int64_t vocabularySize);
constexpr const char* kWriteAgain = "write the file again";

}  // namespace internevo::trainer
