// Gives each thread of a run a processor of its own.
//
// The system wakes a thread where it slept, or near who woke it, and takes two that have just run on one
// processor for better off there than elsewhere, with what is in its caches: it leaves them there for
// milliseconds, while others are idle. A short step would be over by then.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#if defined(__linux__)
#include <sched.h>
#endif

namespace puna {

class Placement {
 public:
  explicit Placement(int num_threads)
      : num_threads_(num_threads), slots_(std::make_unique<Slot[]>(static_cast<size_t>(num_threads))) {}

  // The calling thread begins a run: it goes elsewhere if one with a lower number is on its processor, and
  // another processor is free of this pool's threads. It is not bound to that.
  void begin([[maybe_unused]] int thread) {
#if defined(__linux__)
    Slot& own = slot(thread);
    const int cpu = sched_getcpu();
    own.cpu.store(cpu, std::memory_order_relaxed);
    for (int t = 0; t < thread; ++t)
      if (slot(t).cpu.load(std::memory_order_relaxed) == cpu) return leave(own);
#endif
  }

 private:
  using Clock = std::chrono::steady_clock;

  // A processor that takes so long to begin has other work: a thread would wait for it in the middle of each
  // step. So it stays where it is for a while, with half of a processor.
  static constexpr std::chrono::microseconds kBusy{300};
  static constexpr std::chrono::seconds kStay{1};

  // On a cache line of its own: written by one thread.
  struct alignas(64) Slot {
    std::atomic<int> cpu{-1};  // -1: it has not run yet
    Clock::time_point stays_until{};
  };

  Slot& slot(int thread) const { return slots_[static_cast<size_t>(thread)]; }

#if defined(__linux__)
  // Where that is not allowed, or there are more processors than a cpu_set_t knows, nothing happens.
  void leave(Slot& own) {
    const Clock::time_point start = Clock::now();
    cpu_set_t allowed;
    if (start < own.stays_until || sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
    cpu_set_t free = allowed;
    for (int t = 0; t < num_threads_; ++t)
      if (const int cpu = slot(t).cpu.load(std::memory_order_relaxed); cpu >= 0) CPU_CLR(cpu, &free);
    if (CPU_COUNT(&free) == 0 || sched_setaffinity(0, sizeof(free), &free) != 0) return;
    const Clock::time_point end = Clock::now();
    if (end - start > kBusy) own.stays_until = end + kStay;
    own.cpu.store(sched_getcpu(), std::memory_order_relaxed);
    sched_setaffinity(0, sizeof(allowed), &allowed);
  }
#endif

  const int num_threads_;
  std::unique_ptr<Slot[]> slots_;
};

}  // namespace puna
