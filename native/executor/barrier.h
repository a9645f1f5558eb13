// Where the threads of one step meet between instructions that depend on each other.
#pragma once

#include <atomic>
#include <cstdint>

#include "executor/spin_wait.h"

namespace puna {

class Barrier {
 public:
  explicit Barrier(int num_threads) : num_threads_(static_cast<uint32_t>(num_threads)) {}

  // Returns when all threads have called it; what they wrote before is then visible to all. Reusable at once.
  void wait() {
    if (num_threads_ == 1) return;
    const uint32_t phase = phase_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1) + 1 == num_threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.fetch_add(1);
      phase_.notify_all();
    } else {
      wait_while_equal(phase_, phase);
    }
  }

 private:
  const uint32_t num_threads_;
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
};

}  // namespace puna
