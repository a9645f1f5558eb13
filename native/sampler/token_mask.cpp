#include "sampler/token_mask.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "kernels/kernels.h"

namespace puna {
namespace {

constexpr int64_t kBlockWords = kLogitBlock / TokenMask::kWordBits;
constexpr int64_t kMostTokens = int64_t{1} << 30;

int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

}  // namespace

TokenMask::TokenMask(int64_t num_tokens)
    : num_tokens_(num_tokens), num_words_(divide_up(num_tokens, kWordBits)) {
  if (num_tokens < 1 || num_tokens > kMostTokens)
    throw Error("a mask of " + std::to_string(num_tokens) + " tokens");
  words_.resize(static_cast<size_t>(divide_up(num_tokens, kLogitBlock) * kBlockWords));
}

void TokenMask::finish() {
  error_.clear();
  if (const int64_t rest = num_tokens_ % kWordBits; rest != 0)
    words_[static_cast<size_t>(num_words_ - 1)] &= (uint32_t{1} << rest) - 1;
  int64_t count = 0;
  for (size_t i = 0; i < words_.size() && count < 2; ++i) {
    if (words_[i] == 0) continue;
    count += std::popcount(words_[i]);
    only_ = static_cast<int32_t>(static_cast<int64_t>(i) * kWordBits + std::countr_zero(words_[i]));
  }
  if (count != 1) only_.reset();
  if (count == 0) error_ = "no token is allowed";
}

void TokenMask::fail(std::string error) {
  only_.reset();
  error_ = std::move(error);
}

void TokenMask::check() const {
  if (!error_.empty()) throw Error(error_);
}

bool TokenMask::allows(int64_t token) const {
  if (token < 0 || token >= num_tokens_ || !error_.empty()) return false;
  return (words_[static_cast<size_t>(token / kWordBits)] >> (token % kWordBits) & 1) != 0;
}

const uint32_t* TokenMask::block(int64_t b) const {
  const auto first = static_cast<size_t>(b * kBlockWords);
  if (first >= words_.size()) return nullptr;
  const uint32_t* words = words_.data() + first;
  const bool is_empty = std::all_of(words, words + kBlockWords, [](uint32_t word) { return word == 0; });
  return is_empty ? nullptr : words;
}

bool TokenMask::allows_block(int64_t b) const {
  const uint32_t* words = block(b);
  return words != nullptr &&
         std::all_of(words, words + kBlockWords, [](uint32_t word) { return word == ~uint32_t{0}; });
}

}  // namespace puna
