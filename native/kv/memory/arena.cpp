#include "kv/memory/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "kv/memory/page_fetcher.h"
#include "kv/memory/populate.h"

namespace puna {

struct ByteRange {
  int64_t begin, end;
};

namespace {

constexpr int64_t kAlignment = 64;  // of a block: a cache line, and the widest vector register

// Whether extents are whole huge pages.
bool is_huge(int64_t extent_bytes) { return extent_bytes % kHugePageBytes == 0; }

int64_t total_bytes(int64_t num_blocks, int64_t block_bytes, int64_t extent_blocks, int64_t extent_bytes) {
  if (num_blocks <= 0 || num_blocks > INT32_MAX)
    throw Error("arena: num_blocks is " + std::to_string(num_blocks) + ", not within 1 and 2^31 - 1");
  if (block_bytes <= 0 || block_bytes % kAlignment != 0)
    throw Error("arena: block_bytes is " + std::to_string(block_bytes) + ", not a positive multiple of 64");
  if (extent_blocks <= 0 || extent_blocks > INT32_MAX || extent_bytes % kAlignment != 0 ||
      extent_bytes / block_bytes < extent_blocks)
    throw Error("arena: extents of " + std::to_string(extent_bytes) + " bytes do not have " +
                std::to_string(extent_blocks) + " blocks of " + std::to_string(block_bytes));
  int64_t bytes;
  if (__builtin_mul_overflow((num_blocks + extent_blocks - 1) / extent_blocks, extent_bytes, &bytes) ||
      bytes > INT64_MAX - kHugePageBytes)
    throw Error("arena: " + std::to_string(num_blocks) + " blocks of " + std::to_string(block_bytes) +
                " bytes do not fit in the address space");
  return bytes;
}

// Of huge pages and on the border of one, or of small pages: a huge page would commit neighbours, too, at the
// first write to a block, behind the budget's back.
std::shared_ptr<uint8_t> reserve(int64_t bytes, bool huge) {
  const auto size = static_cast<size_t>(bytes + (huge ? kHugePageBytes : 0));
  void* address =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    throw Error("arena: cannot reserve " + std::to_string(bytes) +
                " bytes of address space: " + std::strerror(errno));
#ifdef MADV_HUGEPAGE
  // Kernels without huge pages answer EINVAL, which is as good.
  madvise(address, size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
#endif
  const auto start = reinterpret_cast<uintptr_t>(address);
  const uintptr_t border = (start + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  return {reinterpret_cast<uint8_t*>(huge ? border : start),
          [address, size](uint8_t*) { munmap(address, size); }};
}

void discard(uint8_t* base, ByteRange range) {
  static const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t begin = (range.begin + page - 1) / page * page, end = range.end / page * page;
  if (begin < end && madvise(base + begin, static_cast<size_t>(end - begin), MADV_DONTNEED) != 0)
    throw Error(std::string("arena: cannot release memory: ") + std::strerror(errno));
}

}  // namespace

Arena::Arena(int64_t num_blocks, int64_t block_bytes, int64_t extent_blocks, int64_t extent_bytes)
    : num_blocks_(num_blocks),
      block_bytes_(block_bytes),
      extent_blocks_(extent_blocks),
      extent_bytes_(extent_bytes),
      mapping_(
          reserve(total_bytes(num_blocks, block_bytes, extent_blocks, extent_bytes), is_huge(extent_bytes))),
      fetcher_(std::make_unique<PageFetcher>()) {}

Arena::~Arena() {
  close();
  if (fetcher_->is_forked()) (void)fetcher_.release();  // a few bytes that go with the process
}

void Arena::close() {
  fetcher_->cancel();
  mapping_.reset();
}

uint8_t* Arena::base() const {
  if (!mapping_) throw Error("arena is closed");
  return mapping_.get();
}

BlockSpace Arena::blocks() const {
  return {base(), num_blocks_, block_bytes_, extent_blocks_, extent_bytes_};
}

void Arena::check(int64_t extent) const {
  if (extent < 0 || extent >= num_extents())
    throw Error("arena: no extent " + std::to_string(extent) + " among " + std::to_string(num_extents()));
}

void Arena::fetch(int64_t extent) {
  uint8_t* start = base();
  check(extent);
  fetcher_->fetch(start + extent * extent_bytes_, extent_bytes_);
}

// Neighbours go together, so that the pages between them do too.
std::vector<ByteRange> Arena::runs_of(std::span<const int64_t> extents) const {
  for (const int64_t extent : extents) check(extent);
  std::vector<int64_t> ids(extents.begin(), extents.end());
  std::sort(ids.begin(), ids.end());
  std::vector<ByteRange> runs;
  for (size_t first = 0, next; first < ids.size(); first = next) {
    next = first + 1;
    while (next < ids.size() && ids[next] <= ids[next - 1] + 1) ++next;
    runs.push_back({ids[first] * extent_bytes_, (ids[next - 1] + 1) * extent_bytes_});
  }
  return runs;
}

void Arena::commit(std::span<const int64_t> extents) {
  uint8_t* start = base();
  const std::vector<ByteRange> runs = runs_of(extents);
  for (size_t i = 0; i < runs.size(); ++i) {
    const int error = populate_pages(start + runs[i].begin, runs[i].end - runs[i].begin);
    if (error == 0) continue;
    for (size_t j = 0; j <= i; ++j) discard(start, runs[j]);
    throw Error("arena: cannot commit " + std::to_string(runs[i].end - runs[i].begin) +
                " bytes: " + std::strerror(error));
  }
}

void Arena::release(std::span<const int64_t> extents) {
  uint8_t* start = base();
  const std::vector<ByteRange> runs = runs_of(extents);
  fetcher_->cancel();
  for (const ByteRange& run : runs) discard(start, run);
}

}  // namespace puna
