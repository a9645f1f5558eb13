#include "gguf/file_mapping.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"

namespace puna {

FileMapping::FileMapping(const RegularFile& file) {
  const auto size = static_cast<size_t>(file.size());
  void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (data == MAP_FAILED) throw Error(std::string("cannot map the file: ") + std::strerror(errno));
  data_ = static_cast<const uint8_t*>(data);
  size_ = size;
  try {
    guard_.emplace(data_, size_);
  } catch (...) {
    munmap(data, size);
    throw;
  }
}

void FileMapping::check_whole() const {
  if (guard_->is_damaged()) throw Error("the model's file was cut short while it was in use");
}

namespace {

// Of the pages that the range touches. What fails is slower, and no more.
void advise(const uint8_t* begin, size_t size, int advice) {
  constexpr uintptr_t kPage = 4096;
  const auto first = reinterpret_cast<uintptr_t>(begin) / kPage * kPage;
  const auto end = reinterpret_cast<uintptr_t>(begin) + size;
  madvise(reinterpret_cast<void*>(first), end - first, advice);
}

}  // namespace

void expect_random_reads(const uint8_t* begin, size_t size, bool is_random) {
  advise(begin, size, is_random ? MADV_RANDOM : MADV_NORMAL);
}

void read_ahead(const uint8_t* begin, size_t size) {
  constexpr size_t kPiece = size_t{1} << 19;  // the system reads no more ahead at once than suits the disk
  for (size_t at = 0; at < size; at += kPiece) advise(begin + at, std::min(kPiece, size - at), MADV_WILLNEED);
}

void FileMapping::release_pages() const { madvise(const_cast<uint8_t*>(data_), size_, MADV_DONTNEED); }

FileMapping::~FileMapping() {
  guard_.reset();  // before another mapping can take the addresses
  munmap(const_cast<uint8_t*>(data_), size_);
}

}  // namespace puna
