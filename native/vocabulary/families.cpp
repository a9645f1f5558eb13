// The tables of each family of vocabularies.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/utf8.h"
#include "gguf/reader.h"
#include "normalization/char_map.h"
#include "vocabulary/builder.h"
#include "vocabulary/byte_alphabet.h"
#include "vocabulary/tables.h"

namespace puna {
namespace {

constexpr std::string_view kSpace = "▁";

std::string byte_name(uint32_t byte) {
  constexpr char kHex[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
}

}  // namespace

std::vector<uint8_t> VocabularyBuilder::byte_pairs(const std::vector<std::string_view>& merges,
                                                   std::string_view word_pattern) const {
  Tables tables{.algorithm = Algorithm::kBytePairs, .word_pattern = word_pattern};
  for (const std::string& character : byte_alphabet()) tables.byte_tokens.push_back(find(character));
  tables.merges = merge_table(merges);
  return pack(tables);
}

std::vector<uint8_t> VocabularyBuilder::character_pairs(const std::vector<std::string_view>& merges,
                                                        std::string_view word_pattern) const {
  Tables tables{.algorithm = Algorithm::kCharacterPairs, .word_pattern = word_pattern};
  for (uint32_t byte = 0; byte < 256; ++byte) tables.byte_tokens.push_back(find(byte_name(byte)));
  tables.merges = merge_table(merges);
  tables.before_space = characters_before_space();
  return pack(tables);
}

std::vector<uint8_t> VocabularyBuilder::sentencepiece(std::vector<float> scores) const {
  if (scores.size() != size()) throw Error("there must be one score for each token");
  Tables tables{.algorithm = Algorithm::kSentencePiece};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    int32_t token = find(byte_name(byte));
    if (token < 0 && byte < 0x80) token = find(std::string(1, static_cast<char>(byte)));
    tables.byte_tokens.push_back(token < 0 ? conventions_.unknown : token);
  }
  for (float& score : scores)
    if (std::isnan(score)) score = -INFINITY;  // has no order
  tables.scores = std::move(scores);
  tables.before_space = characters_before_space();
  return pack(tables);
}

void VocabularyBuilder::set_char_map(std::string_view char_map) {
  uint32_t num_bytes = 0;  // of nodes
  if (char_map.size() >= sizeof num_bytes) std::memcpy(&num_bytes, char_map.data(), sizeof num_bytes);
  if (num_bytes == 0 || num_bytes >= char_map.size() - sizeof num_bytes)
    throw Error("the map of characters is cut short");
  char_map_.resize(num_bytes / sizeof(uint32_t));
  std::memcpy(char_map_.data(), char_map.data() + sizeof num_bytes, char_map_.size() * sizeof(uint32_t));
  replacements_ = char_map.substr(sizeof num_bytes + num_bytes);
  CharMap(char_map_, replacements_);  // it says what is wrong
}

std::vector<uint8_t> VocabularyBuilder::unigram(std::vector<float> scores, float unknown_score) const {
  if (scores.size() != size()) throw Error("there must be one score for each token");
  std::vector<uint16_t> reaches = this->reaches(scores);
  Tables tables{.algorithm = Algorithm::kUnigram,
                .byte_tokens = std::vector<int32_t>(256, -1),
                .scores = std::move(scores),
                .before_space = characters_before_space(),
                .unknown_score = unknown_score,
                .reaches = std::move(reaches)};
  if (!char_map_.empty()) tables.user_defined = user_defined();
  return pack(tables);
}

std::vector<uint8_t> VocabularyBuilder::word_pieces() const {
  return pack({.algorithm = Algorithm::kWordPiece,
               .byte_tokens = std::vector<int32_t>(256, -1),
               .reaches = reaches({})});
}

// scores: of tokens that are not sought, -infinity; empty: all are.
std::vector<uint16_t> VocabularyBuilder::reaches(const std::vector<float>& scores) const {
  std::vector<uint16_t> reaches(kReachPlaces, kReachBytes - 1);
  for (size_t token = 0; token < size(); ++token) {
    if (!scores.empty() && !std::isfinite(scores[token])) continue;
    const std::string_view sought = text(token);
    if (sought.size() > kMaxSoughtBytes)
      throw Error("token " + std::to_string(token) + ": " +
                  too_many("bytes", sought.size(), kMaxSoughtBytes));
    if (sought.size() < kReachBytes) continue;
    uint16_t& reach = reaches[reach_place(sought)];
    reach = std::max(reach, static_cast<uint16_t>(sought.size()));
  }
  return reaches;
}

std::vector<int32_t> VocabularyBuilder::user_defined() const {
  std::vector<int32_t> tokens;
  for (size_t token = 0; token < size(); ++token)
    if (static_cast<TokenKind>(traits_[token] & kKindMask) == TokenKind::kUserDefined)
      tokens.push_back(static_cast<int32_t>(token));
  const auto text_of = [this](int32_t token) { return text(static_cast<size_t>(token)); };
  std::sort(tokens.begin(), tokens.end(), [&](int32_t a, int32_t b) { return text_of(a) < text_of(b); });
  return tokens;
}

std::vector<uint32_t> VocabularyBuilder::characters_before_space() const {
  std::set<uint32_t> characters;
  for (size_t token = 0; token < size(); ++token) {
    const std::string_view all = text(token);
    for (size_t at = all.find(kSpace, 1); at != std::string_view::npos; at = all.find(kSpace, at + 1)) {
      size_t begin = at - 1;
      while (begin > 0 && is_continuation(all[begin])) --begin;
      if (is_utf8(all.substr(begin, at - begin))) characters.insert(decode_utf8(all, begin).code);
    }
  }
  return {characters.begin(), characters.end()};
}

}  // namespace puna
