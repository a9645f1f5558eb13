#include "kv/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"

namespace puna {
namespace {

constexpr int64_t kAlignment = 64;  // of a block: a cache line, and the widest vector register

int64_t total_bytes(int64_t num_blocks, int64_t block_bytes) {
  if (num_blocks <= 0 || num_blocks > INT32_MAX)
    throw Error("arena: num_blocks is " + std::to_string(num_blocks) + ", not within 1 and 2^31 - 1");
  if (block_bytes <= 0 || block_bytes % kAlignment != 0)
    throw Error("arena: block_bytes is " + std::to_string(block_bytes) + ", not a positive multiple of 64");
  int64_t bytes;
  if (__builtin_mul_overflow(num_blocks, block_bytes, &bytes))
    throw Error("arena: " + std::to_string(num_blocks) + " blocks of " + std::to_string(block_bytes) +
                " bytes do not fit in the address space");
  return bytes;
}

std::shared_ptr<uint8_t> reserve(int64_t bytes) {
  void* address = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    throw Error("arena: cannot reserve " + std::to_string(bytes) +
                " bytes of address space: " + std::strerror(errno));
  std::shared_ptr<uint8_t> mapping(static_cast<uint8_t*>(address),
                                   [bytes](uint8_t* base) { munmap(base, static_cast<size_t>(bytes)); });
#ifdef MADV_NOHUGEPAGE
  // A huge page would commit several blocks at the first write to one of them, behind the budget's back.
  // Kernels without huge pages answer EINVAL, which is as good.
  madvise(address, static_cast<size_t>(bytes), MADV_NOHUGEPAGE);
#endif
  return mapping;
}

void discard(uint8_t* base, int64_t begin, int64_t end) {
  static const int64_t page = sysconf(_SC_PAGESIZE);
  begin = (begin + page - 1) / page * page;
  end = end / page * page;
  if (begin < end && madvise(base + begin, static_cast<size_t>(end - begin), MADV_DONTNEED) != 0)
    throw Error(std::string("arena: cannot release memory: ") + std::strerror(errno));
}

}  // namespace

Arena::Arena(int64_t num_blocks, int64_t block_bytes)
    : num_blocks_(num_blocks),
      block_bytes_(block_bytes),
      mapping_(reserve(total_bytes(num_blocks, block_bytes))) {}

uint8_t* Arena::base() const {
  if (!mapping_) throw Error("arena is closed");
  return mapping_.get();
}

void Arena::release(std::span<const int64_t> block_ids) {
  uint8_t* start = base();
  std::vector<int64_t> ids(block_ids.begin(), block_ids.end());
  std::sort(ids.begin(), ids.end());
  if (!ids.empty() && (ids.front() < 0 || ids.back() >= num_blocks_)) {
    const int64_t id = ids.front() < 0 ? ids.front() : ids.back();
    throw Error("arena: no block " + std::to_string(id) + " among " + std::to_string(num_blocks_));
  }
  // Neighbours go together, so that the pages between them go too.
  for (size_t first = 0, next; first < ids.size(); first = next) {
    next = first + 1;
    while (next < ids.size() && ids[next] <= ids[next - 1] + 1) ++next;
    discard(start, ids[first] * block_bytes_, (ids[next - 1] + 1) * block_bytes_);
  }
}

}  // namespace puna
