#include "vocabulary/vocabulary.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "gguf/reader.h"
#include "vocabulary/token_finder.h"

namespace puna {
namespace {

void check(bool ok, const char* what) {
  if (!ok) throw Error(std::string("a vocabulary's ") + what + " is damaged");
}

Header read_header(std::span<const uint8_t> bytes) {
  Header header;
  check(bytes.size() >= sizeof(Header), "header");
  std::memcpy(&header, bytes.data(), sizeof(Header));
  check(header.magic == kMagic && header.size == bytes.size(), "header");
  check(reinterpret_cast<uintptr_t>(bytes.data()) % kAlignment == 0, "alignment");
  return header;
}

std::string_view as_text(std::span<const char> bytes) { return {bytes.data(), bytes.size()}; }

}  // namespace

template <typename T>
std::span<const T> Vocabulary::section(SectionId id) const {
  const Section& section = header_.sections[id];
  check(section.offset % kAlignment == 0 && section.offset <= bytes_.size() &&
            section.count <= (bytes_.size() - section.offset) / sizeof(T),
        "table of sections");
  return {reinterpret_cast<const T*>(bytes_.data() + section.offset), section.count};
}

template <typename T>
std::span<const T> Vocabulary::section(SectionId id, size_t count) const {
  const std::span<const T> found = section<T>(id);
  check(found.size() == count, "table of sections");
  return found;
}

Vocabulary::Vocabulary(std::span<const uint8_t> bytes)
    : bytes_(bytes), header_(read_header(bytes)), hash_(header_.hash_key) {
  ends_ = section<uint32_t>(kTextEnds);
  texts_ = as_text(section<char>(kTexts));
  traits_ = section<uint8_t>(kTraits, ends_.size());
  index_ = section<TextSlot>(kTextIndex);
  byte_tokens_ = section<int32_t>(kByteTokens, 256);
  check(header_.algorithm <= Algorithm::kWordPiece, "algorithm");
  const bool unigram = header_.algorithm == Algorithm::kUnigram;
  const bool scored = unigram || header_.algorithm == Algorithm::kSentencePiece;
  scores_ = section<float>(kScores, scored ? ends_.size() : 0);
  merges_ = section<MergeSlot>(kMerges);
  before_space_ = section<uint32_t>(kBeforeSpace);
  always_found_ = section<FinderNode>(kAlwaysFound);
  all_found_ = section<FinderNode>(kAllFound);
  word_pattern_ = as_text(section<char>(kWordPattern));
  check(word_pattern_.empty() != is_pairs(header_.algorithm) && is_utf8(word_pattern_),
        "way of cutting words");
  char_map_ = CharMap(section<uint32_t>(kCharMap), as_text(section<char>(kReplacements)));
  user_defined_ = section<int32_t>(kUserDefined);
  check_tokens();
  check_tables();
  const bool seeks = unigram || header_.algorithm == Algorithm::kWordPiece;
  reaches_ = section<uint16_t>(kReaches, seeks ? kReachPlaces : 0);
  for (const uint16_t reach : reaches_) longest_ = std::max<size_t>(longest_, reach);
  // reach() says as much of what is shorter than the list tells beginnings apart by.
  check(longest_ <= kMaxSoughtBytes && (!seeks || longest_ >= kReachBytes - 1), "list of lengths");
}

void Vocabulary::check_tokens() const {
  const size_t count = size();
  check(count > 0 && count <= kMaxTokens && texts_.size() <= kMaxTextBytes, "size");
  uint32_t last = 0;
  bool ok = true;
  for (const uint32_t end : ends_) {
    ok = ok && last <= end && end - last <= kMaxTokenBytes;
    last = end;
  }
  check(ok && last == texts_.size(), "table of texts");
  for (const uint8_t trait : traits_)
    ok = ok && (trait & ~kAllTraits) == 0 && (trait & kKindMask) <= static_cast<uint8_t>(TokenKind::kByte);
  check(ok, "table of kinds");
  const auto is_token = [count](int32_t id) { return id >= -1 && id < static_cast<int64_t>(count); };
  const Conventions& named = header_.conventions;
  check(is_token(named.bos) && is_token(named.eos) && is_token(named.separator) && is_token(named.unknown),
        "header");
  check(std::all_of(byte_tokens_.begin(), byte_tokens_.end(), is_token), "table of bytes");
  check(std::isfinite(header_.unknown_score), "header");
  for (const int32_t token : user_defined_) ok = ok && token >= 0 && is_token(token);
  check(ok, "list of user-defined tokens");
}

void Vocabulary::check_tables() const {
  const auto count = static_cast<int64_t>(size());
  bool ok = true;
  size_t free = 0;
  for (const TextSlot& slot : index_) {
    ok = ok && slot.token >= -1 && slot.token < count;
    free += slot.token < 0;
  }
  check(ok && free > 0 && index_.size() <= UINT32_MAX, "index");
  free = 0;
  for (const MergeSlot& slot : merges_) {
    ok = ok && slot.token >= -1 && slot.token < count && (slot.rank < 0 || slot.token >= 0);
    free += slot.rank < 0;
  }
  check(ok && (free > 0) == is_pairs(header_.algorithm) && merges_.size() <= UINT32_MAX, "table of merges");
  check_finder(always_found_, size());
  check_finder(all_found_, size());
}

int32_t Vocabulary::find(std::string_view text, uint64_t hash) const {
  const auto fingerprint = static_cast<uint32_t>(hash);
  for (size_t slot = first_slot(hash, index_.size());;) {
    const TextSlot& found = index_[slot];
    if (found.token < 0) return -1;
    if (found.fingerprint == fingerprint && this->text(static_cast<size_t>(found.token)) == text)
      return found.token;
    slot = slot + 1 == index_.size() ? 0 : slot + 1;
  }
}

Vocabulary::Merge Vocabulary::find_merge(int32_t left, int32_t right) const {
  const auto l = static_cast<uint32_t>(left), r = static_cast<uint32_t>(right);
  for (size_t slot = first_slot(hash_(uint64_t{l} << 32 | r), merges_.size());;) {
    const MergeSlot& found = merges_[slot];
    if (found.rank < 0) return {};
    if (found.left == l && found.right == r) return {found.rank, found.token};
    slot = slot + 1 == merges_.size() ? 0 : slot + 1;
  }
}

bool Vocabulary::joins_space(char32_t character) const {
  return std::binary_search(before_space_.begin(), before_space_.end(), static_cast<uint32_t>(character));
}

}  // namespace puna
