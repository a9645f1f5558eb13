// Brings memory before it is written, on a thread of its own.
#pragma once

#include <unistd.h>

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

  // Queues pages for the thread, which the first call starts. Where none can be, pages come when written.
  void fetch(uint8_t* begin, int64_t bytes);

  // This process is a child of the one that made it: it does nothing here, and must not be destroyed.
  bool is_forked() const { return owner_ != getpid(); }

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
  const pid_t owner_ =
      getpid();  // threads do not survive fork(): a child must neither wait for nor join them
};

}  // namespace puna
