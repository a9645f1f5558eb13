#include "tokenizer/unigram.h"

#include <limits>

#include "base/utf8.h"
#include "normalization/normalize.h"
#include "tokenizer/cut_at_spaces.h"

namespace puna {

void Unigram::encode(std::string_view text, bool with_prefix, std::vector<int32_t>& tokens) {
  normalized_.clear();
  normalize(vocabulary_, text, with_prefix, normalized_);
  score_ = 0;
  is_unknown_ = false;
  if (normalized_.empty()) return;
  cut_at_spaces(vocabulary_, normalized_, [&](std::string_view word) { encode_word(word, tokens); });
}

void Unigram::encode_word(std::string_view word, std::vector<int32_t>& tokens) {
  begin_ways(word);
  for (uint32_t from = 0; from + 1 < ways_.size(); ++from) go_on(word, from);
  append(tokens);
}

void Unigram::begin_ways(std::string_view word) {
  ways_.clear();
  uint64_t hash = 0;
  for (size_t at = 0; at < word.size();) {
    ways_.push_back({static_cast<uint32_t>(at), 0, std::numeric_limits<double>::lowest(), -1, hash});
    const size_t length = decode_utf8(word, at).length;
    hash = vocabulary_.hash().extend(hash, word.substr(at, length));
    at += length;
  }
  ways_.push_back({static_cast<uint32_t>(word.size()), 0, std::numeric_limits<double>::lowest(), -1, hash});
  ways_[0].score = score_;
}

// Of equally good ways the first one that is found stays, which is that with the longest last token.
void Unigram::go_on(std::string_view word, uint32_t from) {
  const Way way = ways_[from];
  const auto offer = [&](uint32_t to, double score, int32_t token) {
    if (way.score + score <= ways_[to].score) return;
    ways_[to].score = way.score + score;
    ways_[to].from = from;
    ways_[to].token = token;
  };
  bool known = false;
  const size_t reach = vocabulary_.reach(word.substr(way.place));
  for (uint32_t to = from + 1; to < ways_.size(); ++to) {
    const size_t length = ways_[to].place - way.place;
    if (length > reach) break;
    const uint64_t hash = vocabulary_.hash().part(way.hash, ways_[to].hash, powers_[length]);
    const int32_t token = vocabulary_.find(word.substr(way.place, length), hash);
    if (token < 0 || !vocabulary_.is_sought(token)) continue;
    known = known || to == from + 1;
    offer(to, static_cast<double>(vocabulary_.score(token)), token);
  }
  if (!known)
    offer(from + 1, static_cast<double>(vocabulary_.unknown_score()), vocabulary_.conventions().unknown);
}

void Unigram::append(std::vector<int32_t>& tokens) {
  backwards_.clear();
  for (size_t at = ways_.size() - 1; at > 0; at = ways_[at].from) backwards_.push_back(ways_[at].token);
  for (auto token = backwards_.rbegin(); token != backwards_.rend(); ++token) {
    const bool unknown = *token == vocabulary_.conventions().unknown;
    if (*token >= 0 && !(unknown && is_unknown_)) tokens.push_back(*token);
    is_unknown_ = unknown;
  }
  score_ = ways_.back().score;
}

}  // namespace puna
