// The items of one stage, shared out over threads. A thread works through its own contiguous share, in memory
// order and the same one at every step; once done it helps the others, so that a thread that is slow, or lost
// its core to another process, holds up no more than what it is at.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

namespace puna {

struct Range {
  int64_t begin, end;

  bool empty() const { return begin >= end; }
};

class WorkShares {
 public:
  explicit WorkShares(int num_threads)
      : num_threads_(num_threads), taken_(std::make_unique<Taken[]>(static_cast<size_t>(num_threads))) {}

  // The first of `count` items that are a thread's share.
  static int64_t begin(int thread, int64_t count, int num_threads) { return count * thread / num_threads; }

  // Nothing has been taken; not while threads take.
  void reset() {
    for (int t = 0; t < num_threads_; ++t)
      taken_[static_cast<size_t>(t)].items.store(0, std::memory_order_relaxed);
  }

  // What `thread` does next of the stage's `count` items: at most `largest` (>= 1), and smaller pieces
  // towards the end, when little is left to balance with. Empty: all items have been taken.
  Range take(int thread, int64_t count, int64_t largest) {
    for (int i = 0; i < num_threads_; ++i) {
      const Range range = take_from((thread + i) % num_threads_, count, largest);
      if (!range.empty()) return range;
    }
    return {0, 0};
  }

 private:
  struct alignas(64) Taken {
    std::atomic<int64_t> items{0};
  };

  Range take_from(int owner, int64_t count, int64_t largest) {
    const int64_t begin = WorkShares::begin(owner, count, num_threads_);
    const int64_t size = WorkShares::begin(owner + 1, count, num_threads_) - begin;
    std::atomic<int64_t>& taken = taken_[static_cast<size_t>(owner)].items;
    int64_t first = taken.load(std::memory_order_relaxed);
    while (first < size) {
      const int64_t items = std::clamp((size - first) * 3 / 4, int64_t{1}, largest);
      if (taken.compare_exchange_weak(first, first + items, std::memory_order_relaxed)) {
        return {begin + first, begin + first + items};
      }
    }
    return {0, 0};
  }

  const int num_threads_;
  std::unique_ptr<Taken[]> taken_;
};

}  // namespace puna
