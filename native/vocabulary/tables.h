// What a vocabulary is packed of besides its tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "vocabulary/builder.h"

namespace puna {

// Parts that only one algorithm has.
struct VocabularyBuilder::Tables {
  Algorithm algorithm;
  std::vector<int32_t> byte_tokens = {};
  std::vector<MergeSlot> merges = {};
  std::vector<float> scores = {};
  std::vector<uint32_t> before_space = {};
  std::string_view word_pattern = {};
  float unknown_score = 0;
  std::vector<int32_t> user_defined = {};
  std::vector<uint16_t> reaches = {};
};

inline std::string too_many(const char* what, size_t count, size_t limit) {
  return std::to_string(count) + " " + what + " are more than the limit of " + std::to_string(limit);
}

}  // namespace puna
