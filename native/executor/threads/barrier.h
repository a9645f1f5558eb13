// The threads of one step meet here between stages that depend on each other.
#pragma once

#include <atomic>
#include <cstdint>

#include "executor/threads/spin_wait.h"

namespace puna {

class Barrier {
 public:
  explicit Barrier(int num_threads) : num_threads_(static_cast<uint32_t>(num_threads)) {}

  // Returns when all threads have called it; what they wrote before is then visible to all. Reusable at once.
  // The last one to arrive calls `before_all_go_on`, while the others wait.
  template <typename Function>
  void wait(ThreadActivity& activity, Function&& before_all_go_on) {
    const uint32_t phase = phase_.load(std::memory_order_relaxed);
    if (num_threads_ == 1 || arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      before_all_go_on();
      phase_.fetch_add(1);
      if (num_threads_ > 1) phase_.notify_all();
    } else {
      wait_while_equal(phase_, phase, kAwakeInStep, activity);
    }
  }

 private:
  const uint32_t num_threads_;
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
};

}  // namespace puna
