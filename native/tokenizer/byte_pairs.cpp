#include "tokenizer/byte_pairs.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "gguf/reader.h"

namespace puna {
namespace {

constexpr char kSeparator = '\0';

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  if (text.empty()) return parts;
  parts.reserve(static_cast<size_t>(std::count(text.begin(), text.end(), kSeparator)) + 1);
  for (size_t end; (end = text.find(kSeparator)) != std::string_view::npos; text.remove_prefix(end + 1))
    parts.push_back(text.substr(0, end));
  parts.push_back(text);
  return parts;
}

// At least half of the slots stay free.
size_t num_slots(size_t num_entries) { return std::bit_ceil(2 * num_entries + 1); }

uint64_t pair_of(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

}  // namespace

TokenIndex::TokenIndex(const std::vector<std::string_view>& texts)
    : texts_(texts), slots_(num_slots(texts.size()), -1) {
  for (size_t token = 0; token < texts.size(); ++token)
    slots_[slot(texts[token])] = static_cast<int32_t>(token);
}

size_t TokenIndex::slot(std::string_view text) const {
  size_t slot = hash_(text) & (slots_.size() - 1);
  while (slots_[slot] >= 0 && texts_[static_cast<size_t>(slots_[slot])] != text)
    slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

int32_t TokenIndex::find(std::string_view text) const { return slots_[slot(text)]; }

MergeTable::MergeTable(size_t num_merges) : entries_(num_slots(num_merges)) {}

size_t MergeTable::slot(uint64_t pair) const {
  size_t slot = hash_(pair) & (entries_.size() - 1);
  while (entries_[slot].merge.rank >= 0 && entries_[slot].pair != pair)
    slot = (slot + 1) & (entries_.size() - 1);
  return slot;
}

void MergeTable::add(int32_t left, int32_t right, Merge merge) {
  const uint64_t pair = pair_of(left, right);
  Entry& entry = entries_[slot(pair)];
  if (entry.merge.rank < 0) entry = {pair, merge};
}

MergeTable::Merge MergeTable::find(int32_t left, int32_t right) const {
  return entries_[slot(pair_of(left, right))].merge;
}

BytePairs::BytePairs(std::string tokens, const std::string& merges, const std::string& alphabet,
                     bool whole_words)
    : text_(std::move(tokens)),
      texts_(split(text_)),
      index_(texts_),
      merges_(static_cast<size_t>(std::count(merges.begin(), merges.end(), kSeparator)) + 1),
      whole_words_(whole_words) {
  const std::vector<std::string_view> characters = split(alphabet);
  if (characters.size() != alphabet_.size()) throw Error("the alphabet does not have 256 characters");
  for (size_t byte = 0; byte < alphabet_.size(); ++byte) {
    alphabet_[byte] = characters[byte];
    byte_tokens_[byte] = index_.find(characters[byte]);
  }
  read_merges(split(merges));
}

void BytePairs::read_merges(const std::vector<std::string_view>& merges) {
  const auto token = [this](std::string_view text) {
    const int32_t found = index_.find(text);
    if (found < 0) throw Error(quoted(text) + " is not in the vocabulary");
    return found;
  };
  std::string merged;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const size_t space = std::min(merges[rank].find(' '), merges[rank].size());
    const std::string_view left = merges[rank].substr(0, space);
    const std::string_view right = merges[rank].substr(std::min(space + 1, merges[rank].size()));
    merged.assign(left).append(right);
    merges_.add(token(left), token(right), {static_cast<int32_t>(rank), token(merged)});
  }
}

void BytePairs::encode(std::string_view word, std::vector<int32_t>& tokens) const {
  if (const int32_t token = whole_words_ ? whole_word(word) : -1; token >= 0) {
    tokens.push_back(token);
    return;
  }
  const auto length = static_cast<int32_t>(word.size());
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (int32_t i = 0; i < length; ++i) {
    const auto byte = static_cast<uint8_t>(word[static_cast<size_t>(i)]);
    symbols.push_back({byte_tokens_[byte], i - 1, i + 1 < length ? i + 1 : -1});
  }
  std::vector<Candidate> heap;
  for (int32_t i = 0; i < length; ++i) offer(symbols, i, heap);
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.merge.rank != b.merge.rank ? a.merge.rank > b.merge.rank : a.position > b.position;
  };
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& left = symbols[static_cast<size_t>(best.position)];
    // Symbols only grow, so equal tokens are still the same pair.
    if (left.token != best.left || left.behind < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(left.behind)];
    if (right.token != best.right) continue;
    left.token = best.merge.token;
    left.behind = right.behind;
    right.token = -1;
    if (left.behind >= 0) symbols[static_cast<size_t>(left.behind)].before = best.position;
    for (const int32_t position : {best.position, left.before}) {
      const size_t before = heap.size();
      offer(symbols, position, heap);
      if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), later);
    }
  }
  for (int32_t i = 0; i >= 0 && i < length; i = symbols[static_cast<size_t>(i)].behind)
    if (const int32_t token = symbols[static_cast<size_t>(i)].token; token >= 0) tokens.push_back(token);
}

int32_t BytePairs::whole_word(std::string_view word) const {
  std::string text;
  for (const char byte : word) text += alphabet_[static_cast<uint8_t>(byte)];
  return index_.find(text);
}

// The pair at a position, if it merges.
void BytePairs::offer(const std::vector<Symbol>& symbols, int32_t position,
                      std::vector<Candidate>& heap) const {
  if (position < 0) return;
  const Symbol& left = symbols[static_cast<size_t>(position)];
  if (left.behind < 0) return;
  const int32_t right = symbols[static_cast<size_t>(left.behind)].token;
  if (left.token < 0 || right < 0) return;
  const MergeTable::Merge merge = merges_.find(left.token, right);
  if (merge.rank >= 0) heap.push_back({merge, position, left.token, right});
}

}  // namespace puna
