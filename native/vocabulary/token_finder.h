// Finds the tokens of a fixed set in text: the longest first, wherever they begin, in about linear time.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "vocabulary/format.h"

namespace puna {

struct FoundToken {
  uint32_t begin = 0, end = 0;
  int32_t token = -1;
};

// texts: all different, none empty. The node behind the last ends its children.
std::vector<FinderNode> build_finder(const std::vector<std::string_view>& texts,
                                     const std::vector<int32_t>& tokens);

// 0: none.
uint32_t find_child(std::span<const FinderNode> nodes, uint32_t node, uint32_t label);

// Error unless every node leads to nodes that exist, and every way ends. num_tokens: of the vocabulary.
void check_finder(std::span<const FinderNode> nodes, size_t num_tokens);

// Of all occurrences, the longest token's are taken first, among equally long ones the token's with the
// lowest id, among a token's the leftmost, unless they overlap what is taken already. A token that strips
// the space before or after it takes that, too, up to what is taken. Result: in the order of the text.
std::vector<FoundToken> find_tokens(std::span<const FinderNode> nodes, std::span<const uint8_t> traits,
                                    std::string_view text);

}  // namespace puna
