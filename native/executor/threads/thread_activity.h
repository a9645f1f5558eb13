// The activity of a pool's threads, as other threads see it: by this a step that hangs is told from a long
// one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/cpu_clock.h"

namespace puna {

class ThreadActivity {
 public:
  explicit ThreadActivity(int num_threads)
      : num_threads_(num_threads), slots_(std::make_unique<Slot[]>(static_cast<size_t>(num_threads))) {}

  // A thread of the pool begins.
  void begin(int thread) { slot(thread).clock.store(this_threads_cpu_clock(), std::memory_order_relaxed); }
  // It has done a piece of work: milliseconds at most, but for a processor that is far too slow for its
  // model.
  void finish_task(int thread) {
    std::atomic<uint64_t>& tasks = slot(thread).tasks;
    tasks.store(tasks.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  // Around a sleep until another thread of the pool, or who calls it, has done something.
  void fall_asleep() { asleep_.fetch_add(1, std::memory_order_relaxed); }
  void wake_up() { asleep_.fetch_sub(1, std::memory_order_relaxed); }

  // From here on for any thread. Tasks done so far, by all threads.
  uint64_t num_tasks() const {
    uint64_t sum = 0;
    for (int t = 0; t < num_threads_; ++t) sum += slot(t).tasks.load(std::memory_order_relaxed);
    return sum;
  }
  int num_asleep() const { return asleep_.load(std::memory_order_relaxed); }
  // Processor time that each has used since it began, in seconds; 0 for those that have not, or have ended.
  std::vector<double> cpu_seconds() const {
    std::vector<double> seconds;
    for (int t = 0; t < num_threads_; ++t)
      seconds.push_back(puna::cpu_seconds(slot(t).clock.load(std::memory_order_relaxed)));
    return seconds;
  }

 private:
  // On a cache line of its own: written by one thread.
  struct alignas(64) Slot {
    std::atomic<uint64_t> tasks{0};
    std::atomic<CpuClock> clock{kNoCpuClock};
  };

  Slot& slot(int thread) const { return slots_[static_cast<size_t>(thread)]; }

  const int num_threads_;
  std::unique_ptr<Slot[]> slots_;
  alignas(64) std::atomic<int> asleep_{0};
};

}  // namespace puna
