// A step that runs, as other threads see it: how far it is, and a way to end it.
#pragma once

#include <atomic>
#include <cstdint>

namespace puna {

class StepControl {
 public:
  // Any thread. The step ends behind its current stage.
  void stop() { stopped_.store(true, std::memory_order_relaxed); }
  bool is_stopped() const { return stopped_.load(std::memory_order_relaxed); }
  // Stages done since it was made, of all steps; any thread.
  uint64_t num_stages() const { return num_stages_.load(std::memory_order_relaxed); }

  // The caller of the step: from here on, nobody has stopped it.
  void begin() { stopped_.store(false, std::memory_order_relaxed); }
  // The step.
  void finish_stage() { num_stages_.fetch_add(1, std::memory_order_relaxed); }

 private:
  std::atomic<bool> stopped_{false};
  std::atomic<uint64_t> num_stages_{0};
};

}  // namespace puna
