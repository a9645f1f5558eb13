#include "vocabulary/builder.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/error.h"
#include "gguf/reader.h"
#include "vocabulary/byte_alphabet.h"
#include "vocabulary/tables.h"
#include "vocabulary/token_finder.h"

namespace puna {
namespace {

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
  packer.add(kCharMap, char_map_);
  packer.add(kReplacements, replacements_);
  packer.add(kUserDefined, tables.user_defined);
  packer.add(kReaches, tables.reaches);
  return packer.finish();
}

}  // namespace puna
