// Megatron-LM's indexed data set. NAME.idx, little endian: 9 bytes "MMIDIDX\0\0", u64 version 1, u8 type of a token
// (1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 8 uint16), u64 sequences n, u64 document entries m; i32 length of each
// sequence, i64 byte of its first token in NAME.bin, i64 first sequence of each document and n at the end; perhaps a
// byte of mode for each sequence. NAME.bin: the tokens, one sequence after the other.
#include <algorithm>

#include "trainer/data_source.h"

namespace internevo::trainer {

namespace {

constexpr std::int64_t kHeaderBytes = 34;

std::string stem(const std::string& path) {
  const std::string end = path.size() > 4 ? path.substr(path.size() - 4) : "";
  return end == ".idx" || end == ".bin" ? path.substr(0, path.size() - 4) : path;
}

class MegatronSource final : public TokenSource {
 public:
  MegatronSource(const std::string& path, std::int64_t vocabularySize) : vocabularySize_(vocabularySize) {
    index_.open(stem(path) + ".idx", kHeaderBytes);
    readHeader();
    tokens_.open(stem(path) + ".bin", 1);
    checkSequences();
    checkDocuments();
  }

  const std::string& path() const override { return tokens_.path(); }
  std::vector<const MappedFile*> files() const override { return {&tokens_, &index_}; }
  std::int64_t tokenCount() const override { return tokens_.bytes() / width_; }

  void read(std::int64_t first, std::int64_t count, std::int32_t* tokens) const override {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t token = tokenAt((first + i) * width_);
      if (token < 0 || token >= vocabularySize_) {
        refuseToken(path(), std::to_string(token), (first + i) * width_, vocabularySize_);
      }
      tokens[i] = static_cast<std::int32_t>(token);
    }
  }

  bool knowsDocuments() const override { return true; }
  std::int64_t nextDocumentStart(std::int64_t position) const override {
    std::int64_t low = 0, high = documentEntries_;  // the first entry that starts after `position`
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (startOf(middle) > position) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low < documentEntries_ ? startOf(low) : tokenCount();
  }

 private:
  std::int64_t lengthByte(std::int64_t sequence) const { return kHeaderBytes + 4 * sequence; }
  std::int64_t pointerByte(std::int64_t sequence) const { return lengthByte(sequences_) + 8 * sequence; }
  std::int64_t documentByte(std::int64_t entry) const { return pointerByte(sequences_) + 8 * entry; }

  /// First token of the document of an entry.
  std::int64_t startOf(std::int64_t entry) const {
    const auto sequence = index_.load<std::int64_t>(documentByte(entry));
    return sequence == sequences_ ? tokenCount() : index_.load<std::int64_t>(pointerByte(sequence)) / width_;
  }

  std::int64_t tokenAt(std::int64_t byte) const {
    switch (type_) {
      case 1: return tokens_.load<std::uint8_t>(byte);
      case 2: return tokens_.load<std::int8_t>(byte);
      case 3: return tokens_.load<std::int16_t>(byte);
      case 4: return tokens_.load<std::int32_t>(byte);
      case 5: return tokens_.load<std::int64_t>(byte);
      default: return tokens_.load<std::uint16_t>(byte);
    }
  }

  void readHeader() {
    const std::string& file = index_.path();
    if (std::memcmp(index_.data(), "MMIDIDX\0\0", 9) != 0) {
      refuseData(file, "does not begin with MMIDIDX",
                 "give the index that Megatron-LM wrote, or set data.format");
    }
    if (index_.load<std::uint64_t>(9) != 1) {
      refuseData(file,
                 "has version " + std::to_string(index_.load<std::uint64_t>(9)) + " at byte 9; 1 is expected",
                 kWriteAgain);
    }
    type_ = index_.load<std::uint8_t>(17);
    constexpr std::int64_t kWidths[9] = {0, 1, 1, 2, 4, 8, 0, 0, 2};
    width_ = type_ < 9 ? kWidths[type_] : 0;
    if (width_ == 0) {
      refuseData(file,
                 "has token type " + std::to_string(type_) +
                     " at byte 17; an integer type is expected (1, 2, 3, 4, 5 or 8)",
                 kWriteAgain);
    }
    const auto sequences = index_.load<std::uint64_t>(18), documents = index_.load<std::uint64_t>(26);
    const auto bytes = static_cast<std::uint64_t>(index_.bytes());
    if (sequences > bytes || documents > bytes) {
      refuseData(file,
                 "has " + std::to_string(bytes) + " bytes; its header says " + std::to_string(sequences) +
                     " sequences (byte 18) and " + std::to_string(documents) +
                     " document entries (byte 26): it is truncated",
                 kWriteAgain);
    }
    sequences_ = static_cast<std::int64_t>(sequences),
    documentEntries_ = static_cast<std::int64_t>(documents);
    const std::int64_t expected = documentByte(documentEntries_);
    if (index_.bytes() != expected && index_.bytes() != expected + sequences_) {
      refuseData(file,
                 "has " + std::to_string(index_.bytes()) + " bytes; its header says " +
                     std::to_string(expected) + " (" + std::to_string(sequences_) + " sequences, " +
                     std::to_string(documentEntries_) + " document entries), or " +
                     std::to_string(expected + sequences_) + " with modes",
                 kWriteAgain);
    }
  }

  void checkSequences() const {
    const std::string& file = index_.path();
    std::int64_t expected = 0;
    for (std::int64_t i = 0; i < sequences_; ++i) {
      const std::int64_t length = index_.load<std::int32_t>(lengthByte(i));
      const auto pointer = index_.load<std::int64_t>(pointerByte(i));
      if (length < 0) {
        refuseData(file,
                   "gives sequence " + std::to_string(i) + " the length " + std::to_string(length) +
                       " (byte " + std::to_string(lengthByte(i)) + "); at least 0 is expected",
                   kWriteAgain);
      }
      if (pointer != expected) {
        refuseData(file,
                   "puts sequence " + std::to_string(i) + " at byte " + std::to_string(pointer) +
                       " of the .bin file (byte " + std::to_string(pointerByte(i)) + "); " +
                       std::to_string(expected) + ", the end of the one before, is expected",
                   kWriteAgain);
      }
      expected += length * width_;
    }
    if (tokens_.bytes() != expected) {
      refuseData(path(),
                 "has " + std::to_string(tokens_.bytes()) + " bytes; its index says " +
                     std::to_string(expected) + ": it is " +
                     (tokens_.bytes() < expected ? "truncated" : "too long"),
                 "give the .bin and the .idx file of one data set");
    }
  }

  void checkDocuments() const {
    for (std::int64_t i = 0; i < documentEntries_; ++i) {
      const auto sequence = index_.load<std::int64_t>(documentByte(i));
      const bool last = i + 1 == documentEntries_;
      const std::int64_t lowest = last     ? sequences_
                                  : i == 0 ? 0
                                           : index_.load<std::int64_t>(documentByte(i - 1));
      const std::int64_t highest = i == 0 && !last ? 0 : sequences_;
      if (sequence >= lowest && sequence <= highest) continue;
      refuseData(index_.path(),
                 "begins document " + std::to_string(i) + " with sequence " + std::to_string(sequence) +
                     " (byte " + std::to_string(documentByte(i)) + "); from " + std::to_string(lowest) +
                     " to " + std::to_string(highest) + " is expected",
                 kWriteAgain);
    }
  }

  MappedFile index_, tokens_;
  std::int64_t vocabularySize_, width_ = 0, sequences_ = 0, documentEntries_ = 0;
  std::uint8_t type_ = 0;
};

}  // namespace

std::unique_ptr<TokenSource> openMegatron(const std::string& path, std::int64_t vocabularySize) {
  return std::make_unique<MegatronSource>(path, vocabularySize);
}

}  // namespace internevo::trainer
