#include "gguf/file_mapping.h"

#include <sys/mman.h>

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

void FileMapping::release_pages() const { madvise(const_cast<uint8_t*>(data_), size_, MADV_DONTNEED); }

FileMapping::~FileMapping() {
  guard_.reset();  // before another mapping can take the addresses
  munmap(const_cast<uint8_t*>(data_), size_);
}

}  // namespace puna
