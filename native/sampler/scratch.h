// Memory that keeps its size, to be used again; growing loses the contents.
#pragma once

#include <cstdint>
#include <memory>

namespace puna {

template <typename T>
class Scratch {
 public:
  T* reserve(int64_t size) {
    if (size > capacity_) {
      data_ = std::make_unique_for_overwrite<T[]>(static_cast<size_t>(size));
      capacity_ = size;
    }
    return data_.get();
  }
  T* get() const { return data_.get(); }

 private:
  std::unique_ptr<T[]> data_;
  int64_t capacity_ = 0;
};

}  // namespace puna
