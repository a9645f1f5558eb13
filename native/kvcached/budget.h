// One limit on the memory that is committed.
#pragma once

#include <cstdint>
#include <mutex>

namespace puna::kvcached {

class Budget {
 public:
  struct Usage {
    int64_t limit, committed, peak;  // bytes
  };

  explicit Budget(int64_t limit) : limit_(limit) {}

  // Throws Failure if so much more would exceed the limit.
  void check(int64_t bytes) const;

  // Comes before the memory is committed, give() after it was released: so what is counted is never less than
  // what there is. Throws Failure if it would exceed the limit.
  void take(int64_t bytes);
  void give(int64_t bytes);

  // Returns whether more than that is committed.
  bool set_limit(int64_t limit);
  Usage usage() const;

 private:
  void check_locked(int64_t bytes) const;

  mutable std::mutex mutex_;
  int64_t limit_, committed_ = 0, peak_ = 0;
};

}  // namespace puna::kvcached
