// Brings memory before it is written, on a thread of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>

namespace puna {

class PageFetcher {
 public:
  PageFetcher() = default;
  ~PageFetcher();
  PageFetcher(const PageFetcher&) = delete;
  PageFetcher& operator=(const PageFetcher&) = delete;

  // Queues pages for the thread, which the first call starts.
  void fetch(uint8_t* begin, int64_t bytes);

  // Forgets what is queued and waits for what is under way: no page comes after that.
  void cancel();

 private:
  struct Range {
    uint8_t* begin;
    int64_t bytes;
  };
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Range> queue_;
  bool is_fetching_ = false;
  bool is_closed_ = false;
  std::thread thread_;
};

}  // namespace puna
