#include "kvcached/budget.h"

#include <algorithm>
#include <string>

#include "kvcached/failure.h"

namespace puna::kvcached {

void Budget::check_locked(int64_t bytes) const {
  if (bytes > limit_ - committed_)
    throw Failure(KVCACHED_ERR_LIMIT, std::to_string(bytes) + " bytes exceed the limit of " +
                                          std::to_string(limit_) + ", of which " +
                                          std::to_string(committed_) + " are committed");
}

void Budget::check(int64_t bytes) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  check_locked(bytes);
}

void Budget::take(int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  check_locked(bytes);
  committed_ += bytes;
  peak_ = std::max(peak_, committed_);
}

void Budget::give(int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  committed_ -= bytes;
}

bool Budget::set_limit(int64_t limit) {
  const std::lock_guard<std::mutex> lock(mutex_);
  limit_ = limit;
  return committed_ > limit_;
}

Budget::Usage Budget::usage() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {limit_, committed_, peak_};
}

}  // namespace puna::kvcached
