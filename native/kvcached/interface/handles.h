// What opaque handles stand for. A handle is a number that is never used again, not an address: so a stale or
// invented one is recognized.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kvcached/failure.h"

namespace puna::kvcached {

template <typename Handle, typename Object>
class Handles {
 public:
  explicit Handles(const char* what) : what_(what) {}

  Handle add(std::shared_ptr<Object> object) {
    const std::lock_guard<std::mutex> lock(mutex_);
    objects_.emplace(++last_, std::move(object));
    return reinterpret_cast<Handle>(last_);
  }

  // The object lives on until the last caller is done with it. Throws Failure for an unknown handle.
  std::shared_ptr<Object> find(Handle handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return locate(handle)->second;
  }

  std::shared_ptr<Object> remove(Handle handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = locate(handle);
    std::shared_ptr<Object> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

  template <typename Predicate>
  std::vector<std::shared_ptr<Object>> remove_if(Predicate predicate) {
    std::vector<std::shared_ptr<Object>> removed;
    const std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(objects_, [&](auto& entry) {
      if (!predicate(*entry.second)) return false;
      removed.push_back(std::move(entry.second));
      return true;
    });
    return removed;
  }

  template <typename Predicate>
  size_t count_if(Predicate predicate) {
    const std::lock_guard<std::mutex> lock(mutex_);
    size_t count = 0;
    for (const auto& entry : objects_) count += predicate(*entry.second) ? 1 : 0;
    return count;
  }

 private:
  auto locate(Handle handle) {
    const auto found = objects_.find(reinterpret_cast<uintptr_t>(handle));
    if (found == objects_.end())
      throw Failure(KVCACHED_ERR_UNKNOWN_HANDLE,
                    std::string("an unknown ") + what_ + ", or one that is gone");
    return found;
  }

  const char* const what_;
  std::mutex mutex_;
  std::map<uintptr_t, std::shared_ptr<Object>> objects_;
  uintptr_t last_ = 0;
};

}  // namespace puna::kvcached
