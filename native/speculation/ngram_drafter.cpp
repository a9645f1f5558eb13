#include "speculation/ngram_drafter.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace puna {
namespace {

constexpr size_t kGoodMatch = 8;   // from here on, nothing better is looked for
constexpr int kNumCandidates = 6;  // earlier places that are looked at
constexpr int kMostSteps = 24;     // on the way to them
constexpr size_t kFewestSlots = 1 << 13, kMostSlots = 1 << 17;
constexpr size_t kMostIndexed = 4096;  // tokens at a time

// A power of two, twice as many as tokens, within bounds.
size_t slots_for(size_t num_tokens) {
  return std::clamp(std::bit_floor(2 * std::min(num_tokens, kMostSlots)) * 2, kFewestSlots, kMostSlots);
}

// How many tokens that end with tokens[place] equal the sequence's last ones. The last two are known to.
size_t common_length(std::span<const int32_t> tokens, size_t place) {
  const size_t last = tokens.size() - 1, longest = std::min(kLongestMatch, place + 1);
  size_t length = 2;
  while (length < longest && tokens[place - length] == tokens[last - length]) ++length;
  return length;
}

}  // namespace

NgramDrafter::NgramDrafter(size_t num_tokens, std::vector<int64_t> stop_tokens)
    : stop_tokens_(std::move(stop_tokens)), num_slots_(slots_for(num_tokens)) {}

void NgramDrafter::update(std::span<const int32_t> tokens) {
  const size_t begin = previous_.size();
  const auto known = tokens.first(std::min(tokens.size(), begin + kMostIndexed));
  for (size_t i = begin; i < known.size() && match_length_ > 0; ++i) follow(known, known[i]);
  index(known);
  if (known.size() < tokens.size()) {
    match_length_ = 0;
  } else if (match_length_ < kGoodMatch) {
    search(tokens);
  }
}

size_t NgramDrafter::chances(std::span<double> chances) const {
  return match_length_ == 0 ? 0 : rates_.chances(match_length_, chances);
}

std::vector<int32_t> NgramDrafter::propose(std::span<const int32_t> tokens, size_t count) const {
  std::vector<int32_t> draft;
  if (match_length_ == 0) return draft;
  const auto known = tokens.subspan(source_, std::min(count, tokens.size() - source_));
  for (size_t i = 0; i < count; ++i) {
    const int32_t token = known[i % known.size()];
    if (std::ranges::find(stop_tokens_, token) != stop_tokens_.end()) break;
    draft.push_back(token);
  }
  return draft;
}

void NgramDrafter::follow(std::span<const int32_t> tokens, int32_t token) {
  const bool was_right = tokens[source_] == token;
  rates_.observe(match_length_, was_right);
  ++source_;
  match_length_ = was_right ? std::min(match_length_ + 1, kLongestMatch) : 0;
}

void NgramDrafter::index(std::span<const int32_t> tokens) {
  if (latest_.empty()) latest_.assign(num_slots_, -1);
  for (size_t i = previous_.size(); i < tokens.size(); ++i) {
    const auto before =
        static_cast<uint64_t>(i > 0 ? tokens[i - 1] : -1);  // -1: the first token ends no pair
    // Odd factors, so that each of two tokens alone decides the slot among pairs with the same other.
    const uint64_t hash = before * 0x9E3779B1U + static_cast<uint64_t>(tokens[i]) * 0x85EBCA77U;
    int32_t& latest = latest_[(hash >> 12) & (num_slots_ - 1)];
    previous_.push_back(latest);
    latest = static_cast<int32_t>(i);
  }
}

// Moves the source to a place with a longer match, if there is one.
void NgramDrafter::search(std::span<const int32_t> tokens) {
  if (tokens.size() < 2) return;
  const size_t last = tokens.size() - 1;
  int32_t next = previous_[last];
  int num_left = kNumCandidates;
  for (int step = 0; step < kMostSteps; ++step) {
    // To be longer, a match must at least go on where the best one so far ends.
    const size_t length = std::max<size_t>(match_length_, 1);
    if (next < static_cast<int32_t>(length) || length == kLongestMatch || num_left == 0) return;
    const auto place = static_cast<size_t>(next);
    if (tokens[place] == tokens[last] && tokens[place - 1] == tokens[last - 1]) {
      --num_left;
      const size_t common =
          tokens[place - length] == tokens[last - length] ? common_length(tokens, place) : 0;
      if (common > match_length_) match_length_ = common, source_ = place + 1;
    }
    next = previous_[place];
  }
}

}  // namespace puna
