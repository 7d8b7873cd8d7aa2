// Streams of random numbers by name, and orders of data drawn from them: every plan starts from the same weights and reads the same data
// whoever computes which part.
#pragma once

#include <cstdint>
#include <string_view>

#include "internevo/random.h"

namespace internevo::trainer {

/// Key of a named stream (FNV-1a of the name, mixed with the seed).
constexpr std::uint64_t streamKey(std::uint64_t seed, std::string_view name) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return mix64(mix64(seed) ^ hash);
}

/// A pseudorandom permutation of [0, count): a Feistel network over the next power of four, walked until it lands
/// inside. Expected fewer than four rounds of it.
inline std::uint64_t permute(std::uint64_t key, std::uint64_t count, std::uint64_t index) noexcept {
  int half = 1;
  while (half < 32 && (std::uint64_t{1} << (2 * half)) < count) ++half;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  do {
    std::uint64_t left = index >> half, right = index & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const std::uint64_t next = left ^ (randomBits(key + round, right) & mask);
      left = right, right = next;
    }
    index = (left << half) | right;
  } while (index >= count);
  return index;
}

}  // namespace internevo::trainer
