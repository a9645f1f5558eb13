// Which tokens a row may give.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace puna {

class TokenMask {
 public:
  static constexpr int64_t kWordBits = 32;

  // All bits are 0.
  explicit TokenMask(int64_t num_tokens);

  // Word i has a bit for each of the tokens [32 * i, 32 * i + 32), the lowest for the first. finish() must
  // follow when they have been written, also anew.
  uint32_t* words() { return words_.data(); }
  int64_t num_bytes() const { return num_words_ * 4; }

  void finish();
  // In place of finish(): it is not known, and no row that has it can be sampled.
  void fail(std::string error);

  // Of one that is finished. Error if it failed.
  void check() const;
  bool allows(int64_t token) const;
  // The only token it allows; none if there are others.
  std::optional<int32_t> only() const { return only_; }
  // The words for a block of logits; null: no token of the block is allowed.
  const uint32_t* block(int64_t b) const;
  // Whether each token of a block of logits is allowed.
  bool allows_block(int64_t b) const;

 private:
  int64_t num_tokens_, num_words_;
  std::vector<uint32_t> words_;  // of whole blocks
  std::optional<int32_t> only_;
  std::string error_;
};

}  // namespace puna
