// Allocations of any size under one budget.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "kv/memory/arena.h"
#include "kvcached/budget.h"

namespace puna::kvcached {

class Context {
 public:
  explicit Context(int64_t limit) : budget_(std::make_shared<Budget>(limit)) {}

  // Committed, zeroed. Throws Failure.
  void* alloc(size_t size);
  // Throws Failure for what alloc() did not return, or what was freed.
  void free(void* pointer);

  const std::shared_ptr<Budget>& budget() const { return budget_; }
  size_t num_allocations() const;

 private:
  int64_t take(size_t size, int64_t* page_bytes);

  const std::shared_ptr<Budget> budget_;
  mutable std::mutex mutex_;
  std::unordered_map<void*, std::unique_ptr<Arena>> allocations_;
};

}  // namespace puna::kvcached
