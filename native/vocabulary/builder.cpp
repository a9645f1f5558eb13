#include "vocabulary/builder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <span>

#include "base/error.h"
#include "base/utf8.h"
#include "gguf/reader.h"
#include "normalization/char_map.h"
#include "vocabulary/byte_alphabet.h"
#include "vocabulary/token_finder.h"

namespace puna {
namespace {

constexpr std::string_view kSpace = "▁";

std::string byte_name(uint32_t byte) {
  constexpr char kHex[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
}

std::string too_many(const char* what, size_t count, size_t limit) {
  return std::to_string(count) + " " + what + " are more than the limit of " + std::to_string(limit);
}

// Appends sections to the header, each where it is aligned.
class Packer {
 public:
  explicit Packer(Header header) : header_(header), bytes_(sizeof(Header)) {}

  template <typename T>
  void add(SectionId id, std::span<const T> items) {
    bytes_.resize((bytes_.size() + kAlignment - 1) / kAlignment * kAlignment);
    header_.sections[id] = {bytes_.size(), items.size()};
    const auto* data = reinterpret_cast<const uint8_t*>(items.data());
    bytes_.insert(bytes_.end(), data, data + items.size_bytes());
  }

  template <typename T>
  void add(SectionId id, const std::vector<T>& items) {
    add(id, std::span<const T>(items));
  }

  void add(SectionId id, std::string_view text) { add(id, std::span<const char>(text.data(), text.size())); }

  std::vector<uint8_t> finish() {
    header_.size = bytes_.size();
    std::memcpy(bytes_.data(), &header_, sizeof(Header));
    return std::move(bytes_);
  }

 private:
  Header header_;
  std::vector<uint8_t> bytes_;
};

}  // namespace

// Parts that only one algorithm has.
struct VocabularyBuilder::Tables {
  Algorithm algorithm;
  std::vector<int32_t> byte_tokens = {};
  std::vector<MergeSlot> merges = {};
  std::vector<float> scores = {};
  std::vector<uint32_t> before_space = {};
  std::string_view word_pattern = {};
  float unknown_score = 0;
  std::vector<uint32_t> char_map = {};
  std::string_view replacements = {};
  std::vector<int32_t> user_defined = {};
  std::vector<uint16_t> reaches = {};
};

VocabularyBuilder::VocabularyBuilder(const std::vector<std::string_view>& texts)
    : index_(num_slots(texts.size())), traits_(texts.size(), static_cast<uint8_t>(TokenKind::kNormal)) {
  if (texts.empty()) throw Error("there are no tokens");
  if (texts.size() > kMaxTokens) throw Error(too_many("tokens", texts.size(), kMaxTokens));
  size_t num_bytes = 0;
  for (const std::string_view text : texts) num_bytes += text.size();
  texts_.reserve(std::min(num_bytes, kMaxTextBytes));
  ends_.reserve(texts.size());
  for (size_t token = 0; token < texts.size(); ++token) {
    const std::string name = texts[token].empty() ? "[EMPTY_" + std::to_string(token) + "]" : "";
    const std::string_view text = texts[token].empty() ? name : texts[token];
    if (text.size() > kMaxTokenBytes)
      throw Error("token " + std::to_string(token) + ": " + too_many("bytes", text.size(), kMaxTokenBytes));
    if (texts_.size() + text.size() > kMaxTextBytes)
      throw Error("the texts together are longer than the limit of " + std::to_string(kMaxTextBytes) +
                  " bytes");
    const uint64_t hash = hash_(text);
    TextSlot& slot = index_[find_slot(text, hash)];
    if (slot.token >= 0) throw Error(quoted(text) + " is there more than once");
    slot = {static_cast<uint32_t>(hash), static_cast<int32_t>(token)};
    texts_.append(text);
    ends_.push_back(static_cast<uint32_t>(texts_.size()));
  }
}

std::string_view VocabularyBuilder::text(size_t token) const {
  const size_t begin = token == 0 ? 0 : ends_[token - 1];
  return std::string_view(texts_).substr(begin, ends_[token] - begin);
}

int32_t VocabularyBuilder::find(std::string_view text) const {
  return index_[find_slot(text, hash_(text))].token;
}

size_t VocabularyBuilder::find_slot(std::string_view text, uint64_t hash) const {
  size_t slot = first_slot(hash, index_.size());
  for (; index_[slot].token >= 0; slot = slot + 1 == index_.size() ? 0 : slot + 1) {
    const TextSlot& found = index_[slot];
    if (found.fingerprint == static_cast<uint32_t>(hash) &&
        this->text(static_cast<size_t>(found.token)) == text)
      break;
  }
  return slot;
}

void VocabularyBuilder::set_traits(std::vector<uint8_t> traits) {
  if (traits.size() != size()) throw Error("there must be one kind for each token");
  size_t special_bytes = 0;
  for (size_t token = 0; token < traits.size(); ++token) {
    const auto kind = static_cast<TokenKind>(traits[token] & kKindMask);
    if (kind == TokenKind::kByte && byte_value(text(token)) < 0)
      throw Error(quoted(text(token)) + " is marked as a byte but is not one");
    if (kind == TokenKind::kUserDefined || kind == TokenKind::kControl || kind == TokenKind::kUnknown)
      special_bytes += text(token).size();
  }
  if (special_bytes > kMaxSpecialBytes)
    throw Error("special tokens of " + too_many("bytes", special_bytes, kMaxSpecialBytes));
  traits_ = std::move(traits);
}

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

std::vector<uint8_t> VocabularyBuilder::unigram(std::vector<float> scores, float unknown_score,
                                                std::string_view char_map) const {
  if (scores.size() != size()) throw Error("there must be one score for each token");
  std::vector<uint16_t> reaches = this->reaches(scores);
  Tables tables{.algorithm = Algorithm::kUnigram,
                .byte_tokens = std::vector<int32_t>(256, -1),
                .scores = std::move(scores),
                .before_space = characters_before_space(),
                .unknown_score = unknown_score,
                .reaches = std::move(reaches)};
  if (!char_map.empty()) {
    uint32_t num_bytes = 0;  // of nodes
    if (char_map.size() >= sizeof num_bytes) std::memcpy(&num_bytes, char_map.data(), sizeof num_bytes);
    if (num_bytes == 0 || num_bytes >= char_map.size() - sizeof num_bytes)
      throw Error("the map of characters is cut short");
    tables.char_map.resize(num_bytes / sizeof(uint32_t));
    std::memcpy(tables.char_map.data(), char_map.data() + sizeof num_bytes,
                tables.char_map.size() * sizeof(uint32_t));
    tables.replacements = char_map.substr(sizeof num_bytes + num_bytes);
    CharMap(tables.char_map, tables.replacements);  // it says what is wrong
    tables.user_defined = user_defined();
  }
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

std::vector<MergeSlot> VocabularyBuilder::merge_table(const std::vector<std::string_view>& merges) const {
  if (merges.size() > kMaxMerges) throw Error(too_many("merges", merges.size(), kMaxMerges));
  std::vector<MergeSlot> table(num_slots(merges.size()));
  const auto token = [this](std::string_view text) {
    const int32_t found = find(text);
    if (found < 0) throw Error(quoted(text) + " is not in the vocabulary");
    return static_cast<uint32_t>(found);
  };
  std::string merged;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const size_t space = std::min(merges[rank].find(' '), merges[rank].size());
    const std::string_view left = merges[rank].substr(0, space);
    const std::string_view right = merges[rank].substr(std::min(space + 1, merges[rank].size()));
    merged.assign(left).append(right);
    const MergeSlot merge = {token(left), token(right), static_cast<int32_t>(rank),
                             static_cast<int32_t>(token(merged))};
    size_t slot = first_slot(hash_(uint64_t{merge.left} << 32 | merge.right), table.size());
    while (table[slot].rank >= 0 && (table[slot].left != merge.left || table[slot].right != merge.right))
      slot = slot + 1 == table.size() ? 0 : slot + 1;
    if (table[slot].rank < 0) table[slot] = merge;
  }
  return table;
}

std::vector<FinderNode> VocabularyBuilder::finder(bool all) const {
  std::vector<std::string_view> texts;
  std::vector<int32_t> tokens;
  for (size_t token = 0; token < size(); ++token) {
    const auto kind = static_cast<TokenKind>(traits_[token] & kKindMask);
    const bool hidden = kind == TokenKind::kControl || kind == TokenKind::kUnknown;
    // What is no UTF-8 is in no text, and must not be found within a character.
    if ((kind == TokenKind::kUserDefined || (all && hidden)) && is_utf8(text(token))) {
      texts.push_back(text(token));
      tokens.push_back(static_cast<int32_t>(token));
    }
  }
  return build_finder(texts, tokens);
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

std::vector<uint8_t> VocabularyBuilder::pack(const Tables& tables) const {
  Header header;
  header.hash_key = hash_key_;
  header.algorithm = tables.algorithm;
  header.conventions = conventions_;
  header.unknown_score = tables.unknown_score;
  Packer packer(header);
  packer.add(kTextEnds, ends_);
  packer.add(kTexts, texts_);
  packer.add(kTraits, traits_);
  packer.add(kTextIndex, index_);
  packer.add(kByteTokens, tables.byte_tokens);
  packer.add(kMerges, tables.merges);
  packer.add(kScores, tables.scores);
  packer.add(kBeforeSpace, tables.before_space);
  packer.add(kAlwaysFound, finder(false));
  packer.add(kAllFound, finder(true));
  packer.add(kWordPattern, tables.word_pattern);
  packer.add(kCharMap, tables.char_map);
  packer.add(kReplacements, tables.replacements);
  packer.add(kUserDefined, tables.user_defined);
  packer.add(kReaches, tables.reaches);
  return packer.finish();
}

}  // namespace puna
