#include "executor/thread_pool.h"

#include <unistd.h>

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
#include "executor/spin_wait.h"

namespace puna {

struct ThreadPool::Impl {
  explicit Impl(int count) : num_threads(count), owner(getpid()) {}

  void start();
  void stop();
  void work(int thread);
  void call(int thread);

  const int num_threads;
  const pid_t owner;  // threads do not survive fork(): a child must neither use nor join them
  std::vector<std::thread> workers;
  std::mutex one_run;
  bool closed = false;

  // One run: `body` is set, then `round` moves on; each worker calls it and counts down `unfinished`.
  const std::function<void(int)>* body = nullptr;  // nullptr: the workers end
  alignas(64) std::atomic<uint32_t> round{0};
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
  round.fetch_add(1);
  round.notify_all();
  for (std::thread& worker : workers) worker.join();
  workers.clear();
}

void ThreadPool::Impl::work(int thread) {
  uint32_t seen = 0;  // the round at construction; no run starts before all workers exist
  for (;;) {
    wait_while_equal(round, seen);
    ++seen;
    if (body == nullptr) return;
    call(thread);
    if (unfinished.fetch_sub(1) == 1) unfinished.notify_one();
  }
}

void ThreadPool::Impl::call(int thread) {
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

void ThreadPool::run(const std::function<void(int)>& body) {
  if (impl_->owner != getpid()) throw Error("the thread pool belongs to the process that was forked");
  const std::lock_guard<std::mutex> lock(impl_->one_run);
  if (impl_->closed) throw Error("the thread pool is closed");
  impl_->body = &body;
  impl_->unfinished.store(static_cast<uint32_t>(impl_->workers.size()), std::memory_order_relaxed);
  impl_->round.fetch_add(1);
  impl_->round.notify_all();
  impl_->call(0);
  for (uint32_t left; (left = impl_->unfinished.load(std::memory_order_acquire)) != 0;) {
    wait_while_equal(impl_->unfinished, left);
  }
  if (impl_->error) std::rethrow_exception(std::exchange(impl_->error, nullptr));
}

void ThreadPool::parallel_for(int64_t count, const std::function<void(int64_t)>& body) {
  std::atomic<int64_t> next{0};
  run([&](int) {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) body(i);
  });
}

}  // namespace puna
