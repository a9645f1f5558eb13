#include "kv/memory/page_fetcher.h"

#include <pthread.h>

#include <system_error>

#include "kv/memory/populate.h"

namespace puna {

PageFetcher::~PageFetcher() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_closed_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void PageFetcher::fetch(uint8_t* begin, int64_t bytes) {
  if (is_forked()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!thread_.joinable()) {
      try {
        thread_ = std::thread(&PageFetcher::run, this);
      } catch (const std::system_error&) {
        return;
      }
    }
    queue_.push_back({begin, bytes});
  }
  changed_.notify_all();
}

void PageFetcher::cancel() {
  if (is_forked()) return;
  std::unique_lock<std::mutex> lock(mutex_);
  queue_.clear();
  changed_.wait(lock, [this] { return !is_fetching_; });
}

void PageFetcher::run() {
  pthread_setname_np(pthread_self(), "puna-pages");  // another thread's name is a file, which a cage denies
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_closed_ || !queue_.empty(); });
    if (is_closed_) return;
    const Range range = queue_.front();
    queue_.pop_front();
    is_fetching_ = true;
    lock.unlock();
    // Whatever it answers: a page that does not come now comes, or fails, when it is written.
    populate_pages(range.begin, range.bytes);
    lock.lock();
    is_fetching_ = false;
    changed_.notify_all();
  }
}

}  // namespace puna
