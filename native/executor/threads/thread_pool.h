// The worker's one thread pool, shared by all models.
#pragma once

#include <cstdint>
#include <functional>

namespace puna {

class ThreadActivity;

class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;
  // Of its threads, the callers of run() as thread 0.
  ThreadActivity& activity() const;

  // Ends the threads; a later run is an Error. Nothing to do the second time.
  void close();

  // body(thread) once on each of the first `count` threads (1 to num_threads), of which the caller is thread
  // 0; the others sleep on. Returns when all are done. One run at a time: concurrent callers wait; a body
  // must not start another. What a body throws (the first of several) is thrown to the caller once all
  // threads are done. Error in a forked child, where the threads are missing.
  void run(int count, const std::function<void(int thread)>& body);

  // body(i) for every i in [0, count), shared out dynamically.
  void parallel_for(int64_t count, const std::function<void(int64_t)>& body);

 private:
  struct Impl;
  Impl* impl_;
};

}  // namespace puna
