#include "executor/threads/thread_pool.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "executor/threads/placement.h"
#include "executor/threads/spin_wait.h"

namespace puna {

namespace {

// The name that top and debuggers show.
void name_this_thread([[maybe_unused]] int thread) {
#if defined(__linux__)
  pthread_setname_np(pthread_self(), ("puna-worker-" + std::to_string(thread)).c_str());
#endif
}

// The runs that a worker has been called to, apart in memory: each is written to by the caller and looked at
// by the worker alone.
struct alignas(64) Calls {
  std::atomic<uint32_t> count{0};
};

}  // namespace

struct ThreadPool::Impl {
  explicit Impl(int count)
      : num_threads(count),
        owner(getpid()),
        activity(count),
        placement(count),
        calls(std::make_unique<Calls[]>(static_cast<size_t>(count))) {}

  void start();
  void stop();
  void work(int thread);
  void call_workers(int count);
  void run_body(int thread);

  const int num_threads;
  const pid_t owner;  // threads do not survive fork(): a child must neither use nor join them
  ThreadActivity activity;
  Placement placement;
  std::vector<std::thread> workers;
  std::mutex one_run;
  bool closed = false;

  // One run: `body` is set, then workers are called; each runs it and counts down `unfinished`.
  const std::function<void(int)>* body = nullptr;  // nullptr: the workers end
  std::unique_ptr<Calls[]> calls;                  // by thread; the first is not used
  alignas(64) std::atomic<uint32_t> unfinished{0};
  std::mutex error_mutex;
  std::exception_ptr error;
};

void ThreadPool::Impl::start() {
  try {
    for (int thread = 1; thread < num_threads; ++thread) {
      workers.emplace_back([this, thread] { work(thread); });
    }
  } catch (const std::system_error& e) {
    stop();
    throw Error("cannot start " + std::to_string(num_threads) + " threads: " + e.what());
  }
}

void ThreadPool::Impl::stop() {
  body = nullptr;
  call_workers(static_cast<int>(workers.size()) + 1);
  for (std::thread& worker : workers) worker.join();
  workers.clear();
}

void ThreadPool::Impl::work(int thread) {
  name_this_thread(thread);
  activity.begin(thread);
  for (uint32_t seen = 0;; ++seen) {
    wait_while_equal(calls[static_cast<size_t>(thread)].count, seen, kAwakeBetweenSteps, activity);
    if (body == nullptr) return;
    placement.begin(thread);
    run_body(thread);
    if (unfinished.fetch_sub(1) == 1) unfinished.notify_one();
  }
}

void ThreadPool::Impl::call_workers(int count) {
  for (int thread = 1; thread < count; ++thread) {
    std::atomic<uint32_t>& called = calls[static_cast<size_t>(thread)].count;
    called.fetch_add(1);
    called.notify_one();
  }
}

void ThreadPool::Impl::run_body(int thread) {
  try {
    (*body)(thread);
  } catch (...) {
    const std::lock_guard<std::mutex> lock(error_mutex);
    if (!error) error = std::current_exception();
  }
}

ThreadPool::ThreadPool(int num_threads) {
  if (num_threads < 1 || num_threads > 1024) {
    throw Error("a thread pool has 1 to 1024 threads, not " + std::to_string(num_threads));
  }
  auto impl = std::make_unique<Impl>(num_threads);
  impl->start();
  impl_ = impl.release();
}

ThreadPool::~ThreadPool() {
  // In a forked child the workers do not exist: std::thread could neither be joined nor destroyed there, and
  // the few hundred bytes go with the process.
  if (impl_->owner != getpid()) return;
  close();
  delete impl_;
}

void ThreadPool::close() {
  if (impl_->owner != getpid()) return;
  const std::lock_guard<std::mutex> lock(impl_->one_run);
  if (impl_->closed) return;
  impl_->closed = true;
  impl_->stop();
}

int ThreadPool::num_threads() const { return impl_->num_threads; }
ThreadActivity& ThreadPool::activity() const { return impl_->activity; }

void ThreadPool::run(int count, const std::function<void(int)>& body) {
  if (impl_->owner != getpid()) throw Error("the thread pool belongs to the process that was forked");
  const std::lock_guard<std::mutex> lock(impl_->one_run);
  if (impl_->closed) throw Error("the thread pool is closed");
  impl_->activity.begin(0);
  impl_->placement.begin(0);
  impl_->body = &body;
  impl_->unfinished.store(static_cast<uint32_t>(count) - 1, std::memory_order_relaxed);
  impl_->call_workers(count);
  impl_->run_body(0);
  for (uint32_t left; (left = impl_->unfinished.load(std::memory_order_acquire)) != 0;) {
    wait_while_equal(impl_->unfinished, left, kAwakeInStep, impl_->activity);
  }
  if (impl_->error) std::rethrow_exception(std::exchange(impl_->error, nullptr));
}

void ThreadPool::parallel_for(int64_t count, const std::function<void(int64_t)>& body) {
  if (count <= 0) return;
  std::atomic<int64_t> next{0};
  run(static_cast<int>(std::min<int64_t>(count, num_threads())), [&](int thread) {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
      body(i);
      impl_->activity.finish_task(thread);
    }
  });
}

}  // namespace puna
