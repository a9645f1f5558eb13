#include "tokenizer/byte_pairs.h"

#include <algorithm>

#include "base/utf8.h"
#include "vocabulary/byte_alphabet.h"

namespace puna {

void BytePairs::encode(std::string_view word, std::vector<int32_t>& tokens) {
  if (const int32_t token = vocabulary_.has(kWholeWords) ? whole_word(word) : -1; token >= 0) {
    tokens.push_back(token);
    return;
  }
  begin(word);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Candidate best = heap_.back();
    heap_.pop_back();
    merge(best);
  }
  append(word, tokens);
}

void BytePairs::begin(std::string_view word) {
  const bool bytes = vocabulary_.algorithm() == Algorithm::kBytePairs;
  symbols_.assign(word.size(), {-1, -1, -1});
  int32_t before = -1;
  for (size_t at = 0; at < word.size();) {
    const size_t length = bytes ? 1 : decode_utf8(word, at).length;
    symbols_[at].token = bytes ? vocabulary_.byte_token(static_cast<uint8_t>(word[at]))
                               : vocabulary_.find(word.substr(at, length));
    symbols_[at].before = before;
    const auto here = static_cast<int32_t>(at);
    if (before >= 0) symbols_[static_cast<size_t>(before)].behind = here;
    before = here;
    at += length;
  }
  heap_.clear();
  for (int32_t i = word.empty() ? -1 : 0; i >= 0; i = symbols_[static_cast<size_t>(i)].behind) offer(i);
  std::make_heap(heap_.begin(), heap_.end());
}

void BytePairs::append(std::string_view word, std::vector<int32_t>& tokens) const {
  const bool bytes = vocabulary_.algorithm() == Algorithm::kBytePairs;
  for (int32_t i = word.empty() ? -1 : 0; i >= 0;) {
    const auto [token, before, behind] = symbols_[static_cast<size_t>(i)];
    const auto at = static_cast<size_t>(i);
    i = behind;
    if (token >= 0) {
      tokens.push_back(token);
    } else if (!bytes) {
      for (const char byte : word.substr(at, decode_utf8(word, at).length))
        if (const int32_t found = vocabulary_.byte_token(static_cast<uint8_t>(byte)); found >= 0)
          tokens.push_back(found);
    }
  }
}

// Unless one of the two has merged with another meanwhile. Symbols only grow, so equal tokens are still the
// same pair.
void BytePairs::merge(const Candidate& best) {
  Symbol& left = symbols_[static_cast<size_t>(best.position)];
  if (left.token != best.left || left.behind < 0) return;
  Symbol& right = symbols_[static_cast<size_t>(left.behind)];
  if (right.token != best.right) return;
  left.token = best.merge.token;
  left.behind = right.behind;
  right.token = -1;
  if (left.behind >= 0) symbols_[static_cast<size_t>(left.behind)].before = best.position;
  for (const int32_t position : {best.position, left.before})
    if (offer(position)) std::push_heap(heap_.begin(), heap_.end());
}

int32_t BytePairs::whole_word(std::string_view word) {
  written_.clear();
  for (const char byte : word) written_ += byte_alphabet()[static_cast<uint8_t>(byte)];
  return vocabulary_.find(written_);
}

// Appends the pair at a position to the heap, if it merges.
bool BytePairs::offer(int32_t position) {
  if (position < 0) return false;
  const Symbol& left = symbols_[static_cast<size_t>(position)];
  if (left.behind < 0) return false;
  const int32_t right = symbols_[static_cast<size_t>(left.behind)].token;
  if (left.token < 0 || right < 0) return false;
  const Vocabulary::Merge merge = vocabulary_.find_merge(left.token, right);
  if (merge.rank < 0) return false;
  heap_.push_back({merge, position, left.token, right});
  return true;
}

}  // namespace puna
