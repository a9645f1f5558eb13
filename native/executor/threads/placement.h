// Gives each thread of a run a processor of its own.
//
// The system wakes a thread where it slept, or near who woke it, and takes two that have just run on one
// processor for better off there than elsewhere, with what is in its caches: it leaves them there for
// milliseconds, while others are idle. A short step would be over by then.
#pragma once

#include <atomic>
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
  void begin(int thread) {
#if defined(__linux__)
    const int cpu = sched_getcpu();
    slot(thread).store(cpu, std::memory_order_relaxed);
    for (int t = 0; t < thread; ++t)
      if (slot(t).load(std::memory_order_relaxed) == cpu) return leave(thread);
#endif
  }

 private:
  // On a cache line of its own: written by one thread. -1: it has not run yet.
  struct alignas(64) Slot {
    std::atomic<int> cpu{-1};
  };

  std::atomic<int>& slot(int thread) const { return slots_[static_cast<size_t>(thread)].cpu; }

#if defined(__linux__)
  // Stays where that is not allowed, or there are more processors than a cpu_set_t knows.
  void leave(int thread) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
    cpu_set_t free = allowed;
    for (int t = 0; t < num_threads_; ++t)
      if (const int cpu = slot(t).load(std::memory_order_relaxed); cpu >= 0) CPU_CLR(cpu, &free);
    if (CPU_COUNT(&free) == 0 || sched_setaffinity(0, sizeof(free), &free) != 0) return;
    slot(thread).store(sched_getcpu(), std::memory_order_relaxed);
    sched_setaffinity(0, sizeof(allowed), &allowed);
  }
#endif

  const int num_threads_;
  std::unique_ptr<Slot[]> slots_;
};

}  // namespace puna
