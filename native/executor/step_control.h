// A way for other threads to end a step that runs.
#pragma once

#include <atomic>

namespace puna {

class StepControl {
 public:
  // Any thread. The step ends within milliseconds: behind its current stage, or within it where one takes
  // long.
  void stop() { stopped_.store(true, std::memory_order_relaxed); }
  bool is_stopped() const { return stopped_.load(std::memory_order_relaxed); }

  // The caller of the step: from here on, nobody has stopped it.
  void begin() { stopped_.store(false, std::memory_order_relaxed); }

 private:
  std::atomic<bool> stopped_{false};
};

}  // namespace puna
