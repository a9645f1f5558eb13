#include "machine/roofs.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"

namespace puna {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One per thread, on a cache line of its own.
struct alignas(64) ThreadResult {
  double value = 0;
  int32_t sink = 0;
};

// Memory of its own, not a heap's: in large pages where the system has them, so that translation costs
// nothing.
class Memory {
 public:
  explicit Memory(int64_t num_bytes) : num_bytes_(static_cast<size_t>(num_bytes)) {
    data_ = mmap(nullptr, num_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw Error("no memory for " + std::to_string(num_bytes) + " bytes");
#if defined(MADV_HUGEPAGE)
    madvise(data_, num_bytes_, MADV_HUGEPAGE);
#endif
  }
  ~Memory() { munmap(data_, num_bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  uint8_t* data() const { return static_cast<uint8_t*>(data_); }

 private:
  size_t num_bytes_;
  void* data_;
};

}  // namespace

double measure_dot_peak(ThreadPool& pool, const Kernels& kernels, double seconds) {
  // Bursts far shorter than the system's time slices: the best one was not interrupted.
  constexpr int64_t kRepeats = 20000;
  std::vector<ThreadResult> results(static_cast<size_t>(pool.num_threads()));
  pool.run(pool.num_threads(), [&](int thread) {
    ThreadResult& result = results[static_cast<size_t>(thread)];
    const Clock::time_point begin = Clock::now();
    do {
      const Clock::time_point start = Clock::now();
      const int64_t ops = kernels.dot_burst(kRepeats, &result.sink);
      result.value = std::max(result.value, static_cast<double>(ops) / seconds_since(start));
    } while (seconds_since(begin) < seconds);
  });
  double total = 0;
  for (const ThreadResult& result : results) total += result.value;
  return total;
}

double measure_read_bandwidth(ThreadPool& pool, const Kernels& kernels, int64_t num_bytes, double seconds) {
  const int64_t part = num_bytes / pool.num_threads() / 4096 * 4096;
  if (part <= 0) throw Error("too few bytes to read: " + std::to_string(num_bytes));
  const Memory memory(part * pool.num_threads());
  std::vector<ThreadResult> results(static_cast<size_t>(pool.num_threads()));
  // Written by the thread that will read it, so that it lies in that thread's memory.
  pool.run(pool.num_threads(),
           [&](int thread) { std::memset(memory.data() + part * thread, 1, static_cast<size_t>(part)); });
  double best = 0;
  const Clock::time_point begin = Clock::now();
  do {
    const Clock::time_point start = Clock::now();
    pool.run(pool.num_threads(), [&](int thread) {
      kernels.read_burst(memory.data() + part * thread, part, &results[static_cast<size_t>(thread)].sink);
    });
    best = std::max(best, static_cast<double>(part * pool.num_threads()) / seconds_since(start));
  } while (seconds_since(begin) < seconds);
  return best;
}

}  // namespace puna
