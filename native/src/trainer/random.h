// Counter-based random numbers: the value at (key, index) is a function of both and of nothing else, so that every
// plan starts from the same weights and reads the same data whoever computes which part.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

namespace internevo::trainer {

/// SplitMix64's output function (Steele, Lea, Flood 2014): a bijection of 64 bits.
constexpr std::uint64_t mix64(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/// Key of a named stream (FNV-1a of the name, mixed with the seed).
constexpr std::uint64_t streamKey(std::uint64_t seed, std::string_view name) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return mix64(mix64(seed) ^ hash);
}

constexpr std::uint64_t randomBits(std::uint64_t key, std::uint64_t index) noexcept {
  return mix64(key ^ mix64(index));
}

/// Standard normal (Box-Muller on two halves of 64 bits).
inline double randomNormal(std::uint64_t key, std::uint64_t index) noexcept {
  const std::uint64_t bits = randomBits(key, index);
  const double u = (static_cast<double>(bits >> 32) + 0.5) * 0x1p-32;  // (0, 1)
  const double v = static_cast<double>(bits & 0xffffffffu) * 0x1p-32;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v);
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
