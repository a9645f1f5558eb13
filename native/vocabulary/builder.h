// Makes a vocabulary in the form of format.h from what a model file says.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "vocabulary/format.h"
#include "vocabulary/keyed_hash.h"

namespace puna {

class VocabularyBuilder {
 public:
  // texts: in the order of ids. An empty one is named by its id, since nothing could be found by it. Error:
  // none, too many, too long, or the same twice.
  explicit VocabularyBuilder(const std::vector<std::string_view>& texts);
  VocabularyBuilder(const VocabularyBuilder&) = delete;
  VocabularyBuilder& operator=(const VocabularyBuilder&) = delete;

  size_t size() const { return ends_.size(); }
  int32_t find(std::string_view text) const;  // -1: none

  // traits: of each token. Error: a byte token that names no byte, or special tokens that are too long in
  // all.
  void set_traits(std::vector<uint8_t> traits);
  void set_conventions(const Conventions& conventions) { conventions_ = conventions; }

  // merges: "left right", by rank; the first of equal ones counts. word_pattern: how text is cut into words.
  // Error: a merge that needs what is no token.
  std::vector<uint8_t> byte_pairs(const std::vector<std::string_view>& merges,
                                  std::string_view word_pattern) const;

  // scores: of each token; the pair with the best one is merged first.
  std::vector<uint8_t> sentencepiece(std::vector<float> scores) const;

  // As byte_pairs, of a vocabulary written in characters, not bytes; of what is no token, bytes become
  // "<0x0A>".
  std::vector<uint8_t> character_pairs(const std::vector<std::string_view>& merges,
                                       std::string_view word_pattern) const;

  // What a unigram vocabulary makes of characters first, as SentencePiece compiles it. Error: it is damaged.
  void set_char_map(std::string_view char_map);

  // scores: of each token, all finite but those of tokens that are not sought in text. Error: as word_pieces.
  std::vector<uint8_t> unigram(std::vector<float> scores, float unknown_score) const;

  // Words begin with U+2581 in it, as llama.cpp's converter writes them. Error: a token that is too long to
  // be looked for at each place of a text.
  std::vector<uint8_t> word_pieces() const;

 private:
  struct Tables;

  std::string_view text(size_t token) const;
  size_t find_slot(std::string_view text, uint64_t hash) const;  // of the text, or a free one for it
  std::vector<MergeSlot> merge_table(const std::vector<std::string_view>& merges) const;
  std::vector<FinderNode> finder(bool all) const;
  std::vector<uint32_t> characters_before_space() const;
  std::vector<uint16_t> reaches(const std::vector<float>& scores) const;
  std::vector<int32_t> user_defined() const;
  std::vector<uint8_t> pack(const Tables& tables) const;

  const uint64_t hash_key_ = KeyedHash::random_key();
  const KeyedHash hash_{hash_key_};
  std::string texts_;
  std::vector<uint32_t> ends_;
  std::vector<TextSlot> index_;
  std::vector<uint8_t> traits_;
  Conventions conventions_;
  std::vector<uint32_t> char_map_;
  std::string replacements_;
};

}  // namespace puna
