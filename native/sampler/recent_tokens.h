// The last tokens of a sequence, counted, for the repetition penalties.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>

namespace puna {

class RecentTokens {
 public:
  // limit: how many tokens are remembered; -1 for all.
  explicit RecentTokens(int64_t limit) : limit_(limit) {}

  void add(int32_t token) {
    if (limit_ == 0) return;
    ++counts_[token];
    if (limit_ < 0) return;
    window_.push_back(token);
    if (static_cast<int64_t>(window_.size()) <= limit_) return;
    const auto oldest = counts_.find(window_.front());
    if (--oldest->second == 0) counts_.erase(oldest);
    window_.pop_front();
  }

  void add(std::span<const int32_t> tokens) {
    // Those before the last ones would only be forgotten again.
    if (limit_ >= 0 && tokens.size() > static_cast<size_t>(limit_))
      tokens = tokens.last(static_cast<size_t>(limit_));
    for (const int32_t token : tokens) add(token);
  }

  // token -> how often it is among the remembered ones, at least once.
  const std::unordered_map<int32_t, int32_t>& counts() const { return counts_; }

 private:
  int64_t limit_;
  std::deque<int32_t> window_;  // in order; empty if there is no limit
  std::unordered_map<int32_t, int32_t> counts_;
};

}  // namespace puna
