// A file that somebody else opened, which may be anything at first: only regular files are taken.
#pragma once

#include <cstdint>
#include <span>

#include "base/descriptor.h"

namespace puna {

class RegularFile {
 public:
  // Reads through a duplicate: the caller keeps `descriptor`. Error: no descriptor, not a regular file,
  // empty.
  explicit RegularFile(int descriptor);

  int descriptor() const { return descriptor_.get(); }
  // Bytes, when it was opened; it may be cut short at any time.
  uint64_t size() const { return size_; }

  // Fills `out` from `offset` on. Error if the file ends before, or cannot be read.
  void read(uint64_t offset, std::span<uint8_t> out) const;

 private:
  Descriptor descriptor_;
  uint64_t size_ = 0;
};

}  // namespace puna
