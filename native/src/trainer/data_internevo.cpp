// InternEvo's tokenized data. NAME.bin: one JSON object a line, a document, {"tokens": [1, 2, …]}, other members
// allowed. NAME.bin.meta: a NumPy array file of int32 or int64 [documents, columns ≥ 2]; the first column is the byte at
// which the document's line begins, the last one its number of tokens.
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "trainer/data_source.h"

namespace internevo::trainer {

namespace {

constexpr const char* kCountLoss =
    "write these tokens as positive numbers, so that their loss counts, or leave them out";

/// Counts what the parser has taken, so that an error can name its byte.
struct CountedBytes {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at = nullptr;
  std::int64_t* taken = nullptr;

  reference operator*() const { return *at; }
  CountedBytes& operator++() {
    ++at, ++*taken;
    return *this;
  }
  CountedBytes operator++(int) {
    CountedBytes before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountedBytes& other) const { return at == other.at; }
  bool operator!=(const CountedBytes& other) const { return at != other.at; }
};

/// Takes tokens [first, first + count) of the array "tokens" at the top of a line; nothing of the line is kept.
struct LineReader : nlohmann::json_sax<nlohmann::json> {
  std::int64_t first, count, vocabularySize;
  std::int32_t* target;
  const std::int64_t* taken;
  int depth = 0;
  bool named = false;  // the member that comes is the top's "tokens"
  bool inside = false, seen = false, negative = false;
  std::int64_t index = 0;
  std::string badToken, damage;
  std::int64_t badByte = 0;  // from the start of the line

  /// `ahead`: characters after the element that the parser has looked at, 1 for a number.
  bool element(const std::string& text, bool integer, std::int64_t value, std::int64_t ahead = 0) {
    if (!inside) {
      if (named) damage = "\"tokens\" is not an array";
      return !named;
    }
    if (index >= first && index < first + count) {
      if (!integer || value < 0 || value >= vocabularySize) {
        badToken = text, negative = integer && value < 0;
        badByte = *taken - ahead - static_cast<std::int64_t>(text.size());
        return false;
      }
      target[index - first] = static_cast<std::int32_t>(value);
    }
    ++index;
    return true;
  }
  bool null() override { return element("null", false, 0); }
  bool boolean(bool value) override { return element(value ? "true" : "false", false, 0); }
  bool number_integer(number_integer_t value) override {
    return element(std::to_string(value), true, value, 1);
  }
  bool number_unsigned(number_unsigned_t value) override {
    const bool small = value <= static_cast<number_unsigned_t>(INT64_MAX);
    return element(std::to_string(value), small, static_cast<std::int64_t>(value), 1);
  }
  bool number_float(number_float_t, const string_t& text) override { return element(text, false, 0, 1); }
  bool string(string_t& text) override {
    return element(nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), false,
                   0);
  }
  bool binary(binary_t&) override { return element("binary", false, 0); }
  bool key(string_t& name) override {
    named = depth == 1 && name == "tokens";
    return true;
  }
  bool start_object(std::size_t) override {
    if (inside) return element("{", false, 0);
    if (named) return element("", false, 0);
    ++depth;
    return true;
  }
  bool end_object() override {
    --depth;
    return true;
  }
  bool start_array(std::size_t) override {
    if (inside) return element("[", false, 0);
    inside = named, seen = seen || named, named = false;
    ++depth;
    return true;
  }
  bool end_array() override {
    inside = false;
    --depth;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    damage = error.what();
    return false;
  }
};

class InternevoSource final : public TokenSource {
 public:
  InternevoSource(const std::string& path, std::int64_t vocabularySize) : vocabularySize_(vocabularySize) {
    lines_.open(path, 1);
    meta_.open(path + ".meta", 10);
    readMetaHeader();
    checkDocuments();
  }

  const std::string& path() const override { return lines_.path(); }
  std::vector<const MappedFile*> files() const override { return {&lines_, &meta_}; }
  std::int64_t tokenCount() const override { return tokenCount_; }
  bool knowsDocuments() const override { return true; }

  std::int64_t nextDocumentStart(std::int64_t position) const override {
    if (position < 0) return 0;
    std::int64_t document = 0, start = 0;
    find(position, &document, &start);
    for (; document < documents_ && start <= position; ++document) start += lengthOf(document);
    return start > position ? start : tokenCount_;
  }

  void read(std::int64_t first, std::int64_t count, std::int32_t* tokens) const override {
    std::int64_t document = 0, start = 0;
    find(first, &document, &start);
    while (count > 0 && document < documents_) {
      const std::int64_t length = lengthOf(document), skip = first - start;
      const std::int64_t here = std::min(count, length - skip);
      if (here > 0) {
        readLine(document, skip, here, tokens);
        tokens += here, first += here, count -= here;
      }
      start += length, ++document;
    }
  }

 private:
  static constexpr std::int64_t kStep = 64;  // documents between two entries of starts_

  std::int64_t cellByte(std::int64_t document, std::int64_t column) const {
    return cells_ + width_ * (columnMajor_ ? column * documents_ + document : document * columns_ + column);
  }
  std::int64_t cell(std::int64_t byte) const {
    return width_ == 4 ? meta_.load<std::int32_t>(byte) : meta_.load<std::int64_t>(byte);
  }
  std::int64_t offsetOf(std::int64_t document) const { return cell(cellByte(document, 0)); }
  std::int64_t lengthOf(std::int64_t document) const { return cell(cellByte(document, columns_ - 1)); }

  /// A document that begins at or before the token, and its first token; near the one that holds it.
  void find(std::int64_t token, std::int64_t* document, std::int64_t* start) const {
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), token);
    *document = (after - starts_.begin() - 1) * kStep;
    *start = *(after - 1);
    while (*document < documents_ && *start + lengthOf(*document) <= token) *start += lengthOf((*document)++);
  }

  void readLine(std::int64_t document, std::int64_t first, std::int64_t count, std::int32_t* tokens) const {
    const std::int64_t begin = offsetOf(document),
                       limit = document + 1 < documents_ ? offsetOf(document + 1) : lines_.bytes();
    const char* const line = reinterpret_cast<const char*>(lines_.data()) + begin;
    const void* const end = std::memchr(line, '\n', static_cast<std::size_t>(limit - begin));
    const char* const last = end == nullptr ? line + (limit - begin) : static_cast<const char*>(end);
    std::int64_t taken = 0;
    LineReader reader;
    reader.first = first, reader.count = count, reader.vocabularySize = vocabularySize_;
    reader.target = tokens, reader.taken = &taken;
    const bool whole =
        nlohmann::json::sax_parse(CountedBytes{line, &taken}, CountedBytes{last, &taken}, &reader);
    const std::string where = "in the document at byte " + std::to_string(begin);
    const std::int64_t badByte = begin + reader.badByte;
    if (reader.negative) {
      refuseData(path(),
                 "has token " + reader.badToken + " at byte " + std::to_string(badByte) + ", the " +
                     std::to_string(reader.index + 1) + ". of document " + std::to_string(document) +
                     "; tokens without loss (negative numbers) are not supported",
                 kCountLoss);
    }
    if (!reader.badToken.empty()) refuseToken(path(), reader.badToken, badByte, vocabularySize_);
    if (!whole || !reader.seen) {
      refuseData(path(),
                 where + " is damaged: " + (reader.damage.empty() ? "there is no \"tokens\"" : reader.damage),
                 kWriteAgain);
    }
    if (reader.index != lengthOf(document)) {
      refuseData(path(),
                 where + " has " + std::to_string(reader.index) + " tokens; its .meta file says " +
                     std::to_string(lengthOf(document)),
                 "write the .meta file again");
    }
  }

  void readMetaHeader() {
    const std::string& file = meta_.path();
    if (std::memcmp(meta_.data(), "\x93NUMPY", 6) != 0)
      refuseData(file, "is not a NumPy array file", "write the .meta file again");
    const bool wide = meta_.load<std::uint8_t>(6) > 1;
    const std::int64_t header = wide ? 12 : 10;
    if (meta_.bytes() < header)
      refuseData(file, "is truncated inside its header", "write the .meta file again");
    const std::int64_t length = wide ? meta_.load<std::uint32_t>(8) : meta_.load<std::uint16_t>(8);
    cells_ = header + length;
    if (cells_ > meta_.bytes())
      refuseData(file, "is truncated inside its header", "write the .meta file again");
    const std::string text(reinterpret_cast<const char*>(meta_.data()) + header,
                           static_cast<std::size_t>(length));
    const auto valueOf = [&](const std::string& name) {
      const std::size_t at = text.find(std::string("'").append(name).append("'"));
      const std::size_t colon = at == std::string::npos ? at : text.find(':', at);
      return colon == std::string::npos ? std::string() : text.substr(text.find_first_not_of(' ', colon + 1));
    };
    width_ = valueOf("descr").rfind("'<i4'", 0) == 0 ? 4 : valueOf("descr").rfind("'<i8'", 0) == 0 ? 8 : 0;
    columnMajor_ = valueOf("fortran_order").rfind("True", 0) == 0;
    long long rows = -1, columns = -1;
    const bool shaped = std::sscanf(valueOf("shape").c_str(), "(%lld, %lld)", &rows, &columns) == 2;
    if (width_ == 0 || !shaped || rows < 0 || columns < 2 || columns > 1024 || rows > meta_.bytes()) {
      refuseData(file,
                 "holds " + text.substr(0, text.find_last_not_of(" \n") + 1) +
                     "; little-endian int32 or int64 of shape (documents, 2 or more) is expected",
                 "write the .meta file again");
    }
    documents_ = rows, columns_ = columns;
    const std::int64_t expected = cells_ + documents_ * columns_ * width_;
    if (meta_.bytes() != expected) {
      refuseData(file,
                 "has " + std::to_string(meta_.bytes()) + " bytes; its header says " +
                     std::to_string(expected) + ": it is " +
                     (meta_.bytes() < expected ? "truncated" : "too long"),
                 "write the .meta file again");
    }
  }

  void checkDocuments() {
    const auto wrong = [&](std::int64_t document, std::int64_t column, const std::string& what) {
      const std::int64_t byte = cellByte(document, column);
      refuseData(meta_.path(),
                 "says " + std::to_string(cell(byte)) + " for document " + std::to_string(document) +
                     " (byte " + std::to_string(byte) + "); " + what,
                 "write the .meta file again (with int64 where the .bin file has 2 GiB or more)");
    };
    for (std::int64_t i = 0; i < documents_; ++i) {
      const std::int64_t lowest = i == 0 ? 0 : offsetOf(i - 1) + 1, offset = offsetOf(i);
      if (offset < lowest || offset >= lines_.bytes()) {
        wrong(i, 0,
              "a byte from " + std::to_string(lowest) + " to " + std::to_string(lines_.bytes() - 1) +
                  " of the .bin file is expected");
      }
      if (lines_.data()[offset] != '{' || (offset > 0 && lines_.data()[offset - 1] != '\n')) {
        wrong(i, 0, "no line with an object begins there in the .bin file");
      }
      if (lengthOf(i) < 0) wrong(i, columns_ - 1, "a number of tokens is expected");
      if (i % kStep == 0) starts_.push_back(tokenCount_);
      tokenCount_ += lengthOf(i);
    }
    if (documents_ == 0) starts_.push_back(0);
  }

  MappedFile lines_, meta_;
  std::int64_t vocabularySize_, tokenCount_ = 0, documents_ = 0, columns_ = 2, width_ = 4, cells_ = 0;
  bool columnMajor_ = false;
  std::vector<std::int64_t> starts_;  // first token of every kStep-th document
};

}  // namespace

std::unique_ptr<TokenSource> openInternevo(const std::string& path, std::int64_t vocabularySize) {
  return std::make_unique<InternevoSource>(path, vocabularySize);
}

}  // namespace internevo::trainer
