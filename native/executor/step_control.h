// A way for other threads to end a step that runs, and for its caller to have it suspended.
#pragma once

#include <atomic>
#include <chrono>

namespace puna {

class StepControl {
 public:
  // Any thread. The step ends within milliseconds: behind its current stage, or within it where one takes
  // long.
  void stop() { stopped_.store(true, std::memory_order_relaxed); }
  bool is_stopped() const { return stopped_.load(std::memory_order_relaxed); }

  // The caller of the step: from here on, nobody has stopped it, and it may run as long as it likes.
  void begin() {
    stopped_.store(false, std::memory_order_relaxed);
    due_ = kNever;
  }
  // The caller: from so many seconds on, the step of an encoder is due to be suspended.
  void suspend_in(double seconds) {
    using Duration = std::chrono::steady_clock::duration;
    due_ = std::chrono::steady_clock::now() +
           std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  }
  // The threads of the step. Once true, it stays so.
  bool is_due() const { return due_ != kNever && std::chrono::steady_clock::now() >= due_; }

 private:
  static constexpr auto kNever = std::chrono::steady_clock::time_point::max();

  std::atomic<bool> stopped_{false};
  std::chrono::steady_clock::time_point due_ = kNever;
};

}  // namespace puna
