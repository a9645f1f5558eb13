// Clocks of the processor time of single threads. Systems without them have none.
#pragma once

#include <pthread.h>
#include <time.h>

namespace puna {

inline double this_threads_cpu_seconds() {
  timespec time{};
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

#if defined(__linux__)

using CpuClock = clockid_t;
inline constexpr CpuClock kNoCpuClock = 0;  // CLOCK_REALTIME: no thread's

inline CpuClock this_threads_cpu_clock() {
  CpuClock clock = kNoCpuClock;
  return pthread_getcpuclockid(pthread_self(), &clock) == 0 ? clock : kNoCpuClock;
}

// 0 without a clock, and where its thread has ended.
inline double cpu_seconds(CpuClock clock) {
  timespec time{};
  if (clock == kNoCpuClock || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

#else

using CpuClock = int;
inline constexpr CpuClock kNoCpuClock = 0;
inline CpuClock this_threads_cpu_clock() { return kNoCpuClock; }
inline double cpu_seconds(CpuClock) { return 0; }

#endif

}  // namespace puna
