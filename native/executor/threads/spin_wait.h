// How threads of the pool wait for each other: spin, then offer the core, then sleep.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "executor/threads/thread_activity.h"

namespace puna {

inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// How long a thread stays awake while it waits: within a step, where the others are at most a few
// microseconds behind unless they lost their core, and between steps, where sampling and scheduling take a
// little longer: some 300 us, and 450 where a reply is held to a grammar.
inline constexpr std::chrono::microseconds kAwakeInStep{60};
inline constexpr std::chrono::microseconds kAwakeBetweenSteps{700};

// Returns once `value` is no longer `old`. Threads of one step are microseconds apart, so spinning is
// cheapest; but a thread that waits for one whose core another process took must give its own core away, and
// a thread with nothing to do must not use any.
inline void wait_while_equal(std::atomic<uint32_t>& value, uint32_t old, std::chrono::microseconds awake,
                             ThreadActivity& activity) {
  constexpr auto kSpin = std::chrono::microseconds(5);
  constexpr int kPausesPerLook = 32;
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      pause_core();
    }
    const auto elapsed = std::chrono::steady_clock::now() - start;
    if (elapsed > awake) break;
    if (elapsed > kSpin) std::this_thread::yield();
  }
  activity.fall_asleep();
  while (value.load(std::memory_order_acquire) == old) value.wait(old);
  activity.wake_up();
}

}  // namespace puna
