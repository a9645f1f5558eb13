// An array that grows without moving what is in it: no call takes long, however large it is.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace puna {

template <class T>
class ChunkedArray {
 public:
  ChunkedArray() = default;
  ChunkedArray(ChunkedArray&&) = default;
  ChunkedArray& operator=(ChunkedArray&&) = default;

  T& operator[](int64_t index) { return chunks_[static_cast<size_t>(index >> kBits)][index & kMask]; }
  const T& operator[](int64_t index) const {
    return chunks_[static_cast<size_t>(index >> kBits)][index & kMask];
  }

  int64_t size() const { return size_; }

  // New elements are T{}.
  void grow(int64_t size) {
    while (static_cast<int64_t>(chunks_.size()) << kBits < size)
      chunks_.push_back(std::make_unique<T[]>(size_t{1} << kBits));
    if (size > size_) size_ = size;
  }

 private:
  static constexpr int kBits = 12;
  static constexpr int64_t kMask = (int64_t{1} << kBits) - 1;

  std::vector<std::unique_ptr<T[]>> chunks_;
  int64_t size_ = 0;
};

}  // namespace puna
