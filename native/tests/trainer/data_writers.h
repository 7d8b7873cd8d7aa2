// Documents written in every format that the trainer reads.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "support.h"

namespace internevo::trainer::testing {

using Document = std::vector<std::int64_t>;
using Documents = std::vector<Document>;

template <typename T>
void append(std::string* bytes, T value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// Version 2 of the own format.
inline void writeOwn(const std::string& path, const Documents& documents, std::uint32_t vocabulary,
                     std::uint32_t width) {
  std::string tokens, starts;
  std::uint64_t count = 0;
  for (const Document& document : documents) {
    append<std::uint64_t>(&starts, count);
    for (const std::int64_t token : document) tokens.append(reinterpret_cast<const char*>(&token), width);
    count += document.size();
  }
  std::string bytes("IEVOTOK\0", 8);
  append<std::uint32_t>(&bytes, 2), append(&bytes, width), append(&bytes, count), append(&bytes, vocabulary);
  append<std::uint32_t>(&bytes, 0), append<std::uint64_t>(&bytes, documents.size());
  bytes.resize(64);
  bytes += tokens;
  bytes.resize((bytes.size() + 7) / 8 * 8);
  writeFile(path, bytes + starts);
}

/// Megatron's .bin and .idx; every document in sequences of at most `sequenceLength` tokens.
inline void writeMegatron(const std::string& stem, const Documents& documents, std::uint8_t type,
                          std::size_t width, bool modes, std::size_t sequenceLength = 5) {
  std::string bin, lengths, pointers, starts;
  std::uint64_t sequences = 0;
  for (const Document& document : documents) {
    append<std::int64_t>(&starts, static_cast<std::int64_t>(sequences));
    for (std::size_t at = 0; at < document.size(); at += sequenceLength, ++sequences) {
      const std::size_t length = std::min(sequenceLength, document.size() - at);
      append<std::int32_t>(&lengths, static_cast<std::int32_t>(length));
      append<std::int64_t>(&pointers, static_cast<std::int64_t>(bin.size()));
      for (std::size_t i = 0; i < length; ++i)
        bin.append(reinterpret_cast<const char*>(&document[at + i]), width);
    }
  }
  append<std::int64_t>(&starts, static_cast<std::int64_t>(sequences));
  std::string index("MMIDIDX\0\0", 9);
  append<std::uint64_t>(&index, 1), append(&index, type), append(&index, sequences);
  append<std::uint64_t>(&index, documents.size() + 1);
  writeFile(stem + ".idx", index + lengths + pointers + starts + (modes ? std::string(sequences, '\0') : ""));
  writeFile(stem + ".bin", bin);
}

enum class MetaLayout { int32, int64, columnMajor, threeColumns };

/// InternEvo's .bin and .bin.meta.
inline void writeInternevo(const std::string& path, const Documents& documents,
                           MetaLayout layout = MetaLayout::int32) {
  std::string lines;
  std::vector<std::int64_t> offsets, lengths;
  for (const Document& document : documents) {
    offsets.push_back(static_cast<std::int64_t>(lines.size()));
    lengths.push_back(static_cast<std::int64_t>(document.size()));
    lines += offsets.size() % 3 == 0 ? R"({"type": "text \" \n [", "more": {"tokens": [7, 8]}, "tokens": [)"
                                     : R"({"tokens": [)";
    for (std::size_t i = 0; i < document.size(); ++i)
      lines += (i == 0 ? "" : ", ") + std::to_string(document[i]);
    lines += offsets.size() % 3 == 1 ? R"(], "length": 3})"
                                       "\n"
                                     : "]}\n";
  }
  const bool wide = layout != MetaLayout::int32, columns = layout == MetaLayout::columnMajor;
  std::string cells;
  const auto cell = [&](std::int64_t value) {
    if (wide) {
      append<std::int64_t>(&cells, value);
    } else {
      append<std::int32_t>(&cells, static_cast<std::int32_t>(value));
    }
  };
  if (columns) {
    for (const std::int64_t offset : offsets) cell(offset);
    for (const std::int64_t length : lengths) cell(length);
  } else {
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      cell(offsets[i]);
      if (layout == MetaLayout::threeColumns) cell(-5);
      cell(lengths[i]);
    }
  }
  std::string header = std::string("{'descr': '<i") + (wide ? "8" : "4") +
                       "', 'fortran_order': " + (columns ? "True" : "False") + ", 'shape': (" +
                       std::to_string(offsets.size()) +
                       (layout == MetaLayout::threeColumns ? ", 3), }" : ", 2), }");
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  std::string meta("\x93NUMPY\x01\x00", 8);
  append<std::uint16_t>(&meta, static_cast<std::uint16_t>(header.size()));
  writeFile(path, lines);
  writeFile(path + ".meta", meta + header + cells);
}

/// Documents of these lengths with tokens of [0, vocabulary).
inline Documents sampleDocuments(const std::vector<std::size_t>& lengths, std::uint32_t vocabulary) {
  std::int64_t total = 0;
  for (const std::size_t length : lengths) total += static_cast<std::int64_t>(length);
  const auto tokens = sampleTokens(total, vocabulary);
  Documents result;
  std::size_t at = 0;
  for (const std::size_t length : lengths) {
    result.emplace_back(tokens.begin() + static_cast<std::ptrdiff_t>(at),
                        tokens.begin() + static_cast<std::ptrdiff_t>(at + length));
    at += length;
  }
  return result;
}

/// A stream of at least `count` tokens in documents of many lengths, of one token too.
struct Packed {
  Documents documents;
  std::vector<std::uint32_t> tokens;
  std::vector<int> documentOf;  ///< of every token
};
inline Packed samplePacked(std::int64_t count, std::uint32_t vocabulary) {
  std::vector<std::size_t> lengths;
  std::int64_t total = 0;
  for (std::size_t i = 0; total < count; ++i) {
    constexpr std::size_t kLengths[] = {5, 1, 17, 23, 70, 30, 1, 1, 9, 48, 13};
    lengths.push_back(kLengths[i % std::size(kLengths)]);
    total += static_cast<std::int64_t>(lengths.back());
  }
  Packed packed{sampleDocuments(lengths, vocabulary), {}, {}};
  for (std::size_t d = 0; d < packed.documents.size(); ++d) {
    packed.tokens.insert(packed.tokens.end(), packed.documents[d].begin(), packed.documents[d].end());
    packed.documentOf.insert(packed.documentOf.end(), packed.documents[d].size(), static_cast<int>(d));
  }
  return packed;
}

}  // namespace internevo::trainer::testing
