// A set of small integers in ascending order: a bitmap.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace puna {

class IdSet {
 public:
  int64_t size() const { return size_; }

  bool contains(int64_t id) const {
    const auto word = static_cast<size_t>(id >> 6);
    return word < words_.size() && (words_[word] >> (id & 63) & 1) != 0;
  }

  // Both return whether that changed anything.
  bool insert(int64_t id) {
    const auto word = static_cast<size_t>(id >> 6);
    if (contains(id)) return false;
    if (word >= words_.size()) words_.resize(word + 1);
    words_[word] |= uint64_t{1} << (id & 63);
    if (word < first_) first_ = word;
    ++size_;
    return true;
  }

  bool erase(int64_t id) {
    if (!contains(id)) return false;
    words_[static_cast<size_t>(id >> 6)] &= ~(uint64_t{1} << (id & 63));
    --size_;
    return true;
  }

  // The lowest member that is at least `from`; -1 if there is none.
  int64_t next(int64_t from) {
    while (first_ < words_.size() && words_[first_] == 0) ++first_;
    auto word = static_cast<size_t>(from >> 6);
    uint64_t mask = ~uint64_t{0} << (from & 63);
    if (word < first_) {
      word = first_;
      mask = ~uint64_t{0};
    }
    for (; word < words_.size(); ++word, mask = ~uint64_t{0})
      if (const uint64_t bits = words_[word] & mask)
        return static_cast<int64_t>(word << 6) + std::countr_zero(bits);
    return -1;
  }

  // The highest member; -1 if there is none.
  int64_t last() {
    while (!words_.empty() && words_.back() == 0) words_.pop_back();
    return words_.empty() ? -1
                          : static_cast<int64_t>(words_.size() * 64) - 1 - std::countl_zero(words_.back());
  }

 private:
  std::vector<uint64_t> words_;
  size_t first_ = 0;  // all words before are empty
  int64_t size_ = 0;
};

}  // namespace puna
