// A doubly linked list of some of an array's elements, which have the fields `previous` and `next`.
#pragma once

#include <cstdint>

#include "kv/pool/chunked_array.h"

namespace puna {

template <class T>
class IndexList {
 public:
  int32_t first() const { return first_; }  // -1: the list is empty
  int32_t last() const { return last_; }
  int64_t size() const { return size_; }

  void push_back(ChunkedArray<T>& items, int32_t index) {
    items[index].previous = last_;
    items[index].next = -1;
    (last_ < 0 ? first_ : items[last_].next) = index;
    last_ = index;
    ++size_;
  }

  void push_front(ChunkedArray<T>& items, int32_t index) {
    items[index].previous = -1;
    items[index].next = first_;
    (first_ < 0 ? last_ : items[first_].previous) = index;
    first_ = index;
    ++size_;
  }

  void insert_before(ChunkedArray<T>& items, int32_t index, int32_t next) {
    const int32_t previous = items[next].previous;
    items[index].previous = previous;
    items[index].next = next;
    (previous < 0 ? first_ : items[previous].next) = index;
    items[next].previous = index;
    ++size_;
  }

  void remove(ChunkedArray<T>& items, int32_t index) {
    const T& item = items[index];
    (item.previous < 0 ? first_ : items[item.previous].next) = item.next;
    (item.next < 0 ? last_ : items[item.next].previous) = item.previous;
    --size_;
  }

 private:
  int32_t first_ = -1, last_ = -1;
  int64_t size_ = 0;
};

}  // namespace puna
