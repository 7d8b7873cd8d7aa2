// Our own format, little endian: bytes 0-7 "IEVOTOK\0", u32 version, u32 bytesPerToken (2 or 4), u64 tokenCount,
// u32 vocabularySize, u32 0, u64 documentCount (version 2), zeros to byte 64; then the tokens. Version 2 goes on with
// zeros to a multiple of 8 bytes and u64 first tokens of the documents, ascending from 0.
#include <algorithm>

#include "internevo/tensor.h"
#include "trainer/data_source.h"

namespace internevo::trainer {

namespace {

constexpr std::int64_t kHeaderBytes = 64;

class OwnSource final : public TokenSource {
 public:
  OwnSource(const std::string& path, std::int64_t vocabularySize) : vocabularySize_(vocabularySize) {
    file_.open(path, kHeaderBytes);
    if (std::memcmp(file_.data(), "IEVOTOK", 8) != 0) {
      refuseData(path, "does not begin with IEVOTOK", "give a token file, or set data.format");
    }
    const auto version = file_.load<std::uint32_t>(8), width = file_.load<std::uint32_t>(12);
    const auto count = file_.load<std::uint64_t>(16), documents = file_.load<std::uint64_t>(32);
    const auto vocabulary = file_.load<std::uint32_t>(24);
    if (version != 1 && version != 2) {
      refuseData(path, "has version " + std::to_string(version) + " at byte 8; 1 or 2 is expected",
                 kWriteAgain);
    }
    if (width != 2 && width != 4) {
      refuseData(path, "has " + std::to_string(width) + " bytes a token at byte 12; 2 or 4 is expected",
                 kWriteAgain);
    }
    if (count > kMost)
      refuseData(path, "names " + std::to_string(count) + " tokens at byte 16, too many", kWriteAgain);
    if (version == 2 && documents > kMost) {
      refuseData(path, "names " + std::to_string(documents) + " documents at byte 32, too many", kWriteAgain);
    }
    tokenCount_ = static_cast<std::int64_t>(count), bytesPerToken_ = width;
    documentCount_ = version == 2 ? static_cast<std::int64_t>(documents) : 0;
    checkSize(version == 2);
    if (static_cast<std::int64_t>(vocabulary) > vocabularySize) {
      refuseData(path,
                 "has a vocabulary of " + std::to_string(vocabulary) + "; model.vocabularySize is " +
                     std::to_string(vocabularySize),
                 "raise model.vocabularySize, or tokenize with a smaller vocabulary");
    }
    checkDocuments();
  }

  const std::string& path() const override { return file_.path(); }
  std::vector<const MappedFile*> files() const override { return {&file_}; }
  std::int64_t tokenCount() const override { return tokenCount_; }

  void read(std::int64_t first, std::int64_t count, std::int32_t* tokens) const override {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = kHeaderBytes + (first + i) * bytesPerToken_;
      const std::uint32_t token =
          bytesPerToken_ == 2 ? file_.load<std::uint16_t>(at) : file_.load<std::uint32_t>(at);
      if (static_cast<std::int64_t>(token) >= vocabularySize_) {
        refuseToken(path(), std::to_string(token), at, vocabularySize_);
      }
      tokens[i] = static_cast<std::int32_t>(token);
    }
  }

  bool knowsDocuments() const override { return documentCount_ > 0; }
  std::int64_t nextDocumentStart(std::int64_t position) const override {
    std::int64_t low = 0, high = documentCount_;  // the first document that starts after `position`
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (startOf(middle) > position) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low < documentCount_ ? startOf(low) : tokenCount_;
  }

 private:
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 58;

  std::int64_t documentByte(std::int64_t document) const {
    return alignUp(kHeaderBytes + tokenCount_ * bytesPerToken_, 8) + document * 8;
  }
  std::int64_t startOf(std::int64_t document) const {
    return file_.load<std::int64_t>(documentByte(document));
  }

  void checkSize(bool indexed) const {
    const std::int64_t expected =
        indexed ? documentByte(documentCount_) : kHeaderBytes + tokenCount_ * bytesPerToken_;
    if (file_.bytes() == expected) return;
    refuseData(path(),
               "has " + std::to_string(file_.bytes()) + " bytes; its header says " +
                   std::to_string(expected) + " (" + std::to_string(tokenCount_) + " tokens of " +
                   std::to_string(bytesPerToken_) + " bytes" +
                   (indexed ? ", " + std::to_string(documentCount_) + " documents" : "") + "): it is " +
                   (file_.bytes() < expected ? "truncated" : "too long"),
               kWriteAgain);
  }

  void checkDocuments() const {
    for (std::int64_t i = 0; i < documentCount_; ++i) {
      const std::int64_t lowest = i == 0 ? 0 : startOf(i - 1) + 1, highest = i == 0 ? 0 : tokenCount_ - 1;
      if (startOf(i) >= lowest && startOf(i) <= highest) continue;
      refuseData(path(),
                 "starts document " + std::to_string(i) + " at token " + std::to_string(startOf(i)) +
                     " (byte " + std::to_string(documentByte(i)) + "); from " + std::to_string(lowest) +
                     " to " + std::to_string(highest) + " is expected",
                 kWriteAgain);
    }
  }

  MappedFile file_;
  std::int64_t vocabularySize_, tokenCount_ = 0, bytesPerToken_ = 2, documentCount_ = 0;
};

}  // namespace

std::unique_ptr<TokenSource> openOwn(const std::string& path, std::int64_t vocabularySize) {
  return std::make_unique<OwnSource>(path, vocabularySize);
}

}  // namespace internevo::trainer
