// Hashes under a key that is drawn for each vocabulary: a stranger's tokens cannot be chosen to collide.
#pragma once

#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

namespace puna {

class KeyedHash {
 public:
  explicit KeyedHash(uint64_t key) : key_(key), base_((*this)(key) % (kPrime - 512) + 256) {}

  static uint64_t random_key() {
    std::random_device random;
    return (uint64_t{random()} << 32) | random();
  }

  uint64_t operator()(uint64_t value) const { return fold(fold(value ^ key_, kOdd), key_ | 1); }

  // Of a text: a polynomial of its bytes, so that parts of a text need not be read again.
  uint64_t operator()(std::string_view text) const { return finish(extend(0, text)); }

  // Of the text so far, with more of it.
  uint64_t extend(uint64_t so_far, std::string_view more) const {
    for (const char c : more) so_far = add(multiply(so_far, base_), uint64_t{static_cast<uint8_t>(c)} + 1);
    return so_far;
  }

  // What `before` and then a part extended to `whole`: the hash of that part. power: of its length.
  uint64_t part(uint64_t before, uint64_t whole, uint64_t power) const {
    return finish(add(whole, kPrime - multiply(before, power)));
  }

  // For parts of 0 to `longest` bytes.
  std::vector<uint64_t> powers(size_t longest) const {
    std::vector<uint64_t> all = {1};
    while (all.size() <= longest) all.push_back(multiply(all.back(), base_));
    return all;
  }

 private:
  static constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  static constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;

  static uint64_t fold(uint64_t a, uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

  static uint64_t add(uint64_t a, uint64_t b) { return a + b >= kPrime ? a + b - kPrime : a + b; }

  static uint64_t multiply(uint64_t a, uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return add(static_cast<uint64_t>(product) & kPrime, static_cast<uint64_t>(product >> 61));
  }

  uint64_t finish(uint64_t polynomial) const { return fold(polynomial ^ key_, kOdd ^ key_); }

  uint64_t key_;
  uint64_t base_;
};

}  // namespace puna
