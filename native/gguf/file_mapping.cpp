#include "gguf/file_mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"

namespace puna {

namespace {

constexpr size_t kLargePage = size_t{2} << 20;

// Where the system may use large pages: their first byte is at a multiple of their size, in the file as in
// memory. MAP_FAILED: see errno.
void* map_aligned(const RegularFile& file, size_t size) {
  const size_t reserved = size + kLargePage;
  void* reservation = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reservation == MAP_FAILED) return MAP_FAILED;
  auto* begin = static_cast<uint8_t*>(reservation);
  const size_t before = -reinterpret_cast<uintptr_t>(begin) % kLargePage;
  void* data = mmap(begin + before, size, PROT_READ, MAP_SHARED | MAP_FIXED, file.descriptor(), 0);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t end = data == MAP_FAILED ? 0 : before + (size + page - 1) / page * page;
  if (data != MAP_FAILED && before > 0) munmap(begin, before);
  munmap(begin + end, reserved - end);
  return data;
}

}  // namespace

FileMapping::FileMapping(const RegularFile& file) {
  const auto size = static_cast<size_t>(file.size());
  void* data = map_aligned(file, size);
  if (data == MAP_FAILED) throw Error(std::string("cannot map the file: ") + std::strerror(errno));
#if defined(MADV_HUGEPAGE)
  madvise(data, size, MADV_HUGEPAGE);  // where the file system knows them; what fails is slower, and no more
#endif
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
#if defined(MADV_HUGEPAGE)
  advise(begin, size, is_random ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
#endif
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
