#include "tokenizer/sentencepiece.h"

#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/cut_at_spaces.h"

namespace puna {

void SentencePiece::encode(std::string_view text, bool with_prefix, std::vector<int32_t>& tokens) {
  written_.clear();
  if (with_prefix) written_ += kSpaceSign;
  for (const char c : text) {
    if (c == ' ')
      written_ += kSpaceSign;
    else
      written_ += c;
  }
  cut_at_spaces(vocabulary_, written_, [&](std::string_view word) { encode_word(word, tokens); });
}

void SentencePiece::encode_word(std::string_view word, std::vector<int32_t>& tokens) {
  symbols_.clear();
  uint64_t hash = 0;
  for (size_t at = 0; at < word.size();) {
    const auto index = static_cast<uint32_t>(symbols_.size());
    symbols_.push_back({static_cast<uint32_t>(at), index + 1, index == 0 ? kNone : index - 1, hash});
    const size_t length = decode_utf8(word, at).length;
    hash = vocabulary_.hash().extend(hash, word.substr(at, length));
    at += length;
  }
  const auto end = static_cast<uint32_t>(symbols_.size());
  symbols_.push_back({static_cast<uint32_t>(word.size()), kNone, kNone, hash});
  heap_.clear();
  for (uint32_t left = 0; left + 1 < end; ++left) offer(word, left, left + 1);
  std::make_heap(heap_.begin(), heap_.end());
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Candidate best = heap_.back();
    heap_.pop_back();
    merge(word, best);
  }
  for (uint32_t symbol = 0; symbol < end; symbol = symbols_[symbol].behind) {
    const uint32_t behind = symbols_[symbol].behind;
    if (const int32_t found = token(word, symbol, behind); found >= 0) {
      tokens.push_back(found);
      continue;
    }
    const size_t begin = symbols_[symbol].begin;
    for (const char byte : word.substr(begin, symbols_[behind].begin - begin))
      if (const int32_t token = vocabulary_.byte_token(static_cast<uint8_t>(byte)); token >= 0)
        tokens.push_back(token);
  }
}

// Unless one of the two has merged with another meanwhile.
void SentencePiece::merge(std::string_view word, const Candidate& best) {
  Symbol& left = symbols_[best.left];
  Symbol& right = symbols_[best.right];
  if (left.behind != best.right || right.behind != best.end) return;
  left.behind = best.end;
  right.behind = 0;
  if (left.before != kNone && offer(word, left.before, best.left)) std::push_heap(heap_.begin(), heap_.end());
  if (best.end + 1 == symbols_.size()) return;
  symbols_[best.end].before = best.left;
  if (offer(word, best.left, best.end)) std::push_heap(heap_.begin(), heap_.end());
}

// Of a symbol that reaches to `end`; -1: none. Its text is read only if there is one.
int32_t SentencePiece::token(std::string_view word, uint32_t symbol, uint32_t end) const {
  const Symbol &first = symbols_[symbol], &last = symbols_[end];
  const size_t length = last.begin - first.begin;
  if (length > kMaxTokenBytes) return -1;
  const uint64_t hash = vocabulary_.hash().part(first.hash, last.hash, powers_[length]);
  return vocabulary_.find(word.substr(first.begin, length), hash);
}

// Appends two neighbours to the heap, if their union is a token.
bool SentencePiece::offer(std::string_view word, uint32_t left, uint32_t right) {
  const uint32_t end = symbols_[right].behind;
  const int32_t found = token(word, left, end);
  if (found < 0) return false;
  heap_.push_back({vocabulary_.score(found), left, right, end});
  return true;
}

}  // namespace puna
