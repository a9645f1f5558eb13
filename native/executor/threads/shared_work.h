// What the threads of a step share, beside the activations.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "executor/step_control.h"
#include "executor/threads/barrier.h"
#include "executor/threads/thread_activity.h"
#include "executor/threads/work_shares.h"

namespace puna {

struct SharedWork {
  explicit SharedWork(int threads) : num_threads(threads), barrier(threads), shares(threads) {}

  // goes_on: with the step that was suspended last.
  void begin(StepControl* of_step, bool may_suspend, bool goes_on) {
    control = of_step;
    can_suspend = may_suspend;
    if (!goes_on) reset();
    if (is_cut)  // perhaps in the middle of a tile
      for (std::atomic<int32_t>& arrived : attention_arrivals) arrived.store(0, std::memory_order_relaxed);
    is_cut = is_suspended = false;
    has_rest.store(false, std::memory_order_relaxed);
  }

  // When the last thread arrives, none is taking work before the barrier any more.
  void wait(ThreadActivity& activity) {
    barrier.wait(activity, [this] {
      is_cut = control != nullptr && control->is_stopped();
      is_suspended = !is_cut && can_suspend && control != nullptr && control->is_due();
      if (!is_in_midst()) reset();
    });
  }

  bool ends_here() const { return is_cut || is_suspended; }
  // Whether the step was suspended within a stage, which then goes on with the work that is not taken yet.
  bool is_in_midst() const { return is_suspended && has_rest.load(std::memory_order_relaxed); }

  const int num_threads;
  Barrier barrier;
  // Work that was taken since the last barrier.
  WorkShares shares;
  alignas(64) std::atomic<int64_t> claimed{0};
  // A thread has left work of its stage, since the step is due.
  std::atomic<bool> has_rest{false};
  StepControl* control = nullptr;
  bool can_suspend = false;
  // Whether the step ends here, for good or for now. They change only while all threads wait, so that they
  // agree.
  bool is_cut = false, is_suspended = false;
  std::vector<std::atomic<int32_t>> attention_arrivals;

 private:
  void reset() {
    shares.reset();
    claimed.store(0, std::memory_order_relaxed);
  }
};

}  // namespace puna
