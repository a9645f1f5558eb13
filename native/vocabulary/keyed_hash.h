// Hashes under a key that is drawn for each vocabulary: a stranger's tokens cannot be chosen to collide.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>

namespace puna {

class KeyedHash {
 public:
  explicit KeyedHash(uint64_t key) : key_(key) {}

  static uint64_t random_key() {
    std::random_device random;
    return (uint64_t{random()} << 32) | random();
  }

  uint64_t operator()(uint64_t value) const { return fold(fold(value ^ key_, kOdd), key_ | 1); }

  uint64_t operator()(std::string_view text) const {
    uint64_t hash = key_ ^ text.size();
    while (text.size() >= sizeof(uint64_t)) {
      hash = fold(hash ^ word(text, sizeof(uint64_t)), kOdd);
      text.remove_prefix(sizeof(uint64_t));
    }
    return fold(hash ^ word(text, text.size()), kOdd ^ key_);
  }

 private:
  static constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;

  static uint64_t fold(uint64_t a, uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

  static uint64_t word(std::string_view text, size_t num_bytes) {
    uint64_t value = 0;
    if (num_bytes > 0) std::memcpy(&value, text.data(), num_bytes);
    return value;
  }

  uint64_t key_;
};

}  // namespace puna
