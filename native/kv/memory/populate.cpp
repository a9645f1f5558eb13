#include "kv/memory/populate.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace puna {
namespace {

#ifdef MADV_POPULATE_WRITE
constexpr int kPopulate = MADV_POPULATE_WRITE;
#else
constexpr int kPopulate = 23;  // Linux 5.14; older kernels answer EINVAL
#endif

}  // namespace

int populate_pages(uint8_t* begin, int64_t bytes) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t first = start / page * page,
                  end = (start + static_cast<uintptr_t>(bytes) + page - 1) / page * page;
  int error;
  do {
    error = madvise(reinterpret_cast<void*>(first), end - first, kPopulate) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error != EINVAL) return error;
  for (uintptr_t address = first; address < end; address += page)
    __atomic_fetch_or(reinterpret_cast<uint8_t*>(address), 0, __ATOMIC_RELAXED);
  return 0;
}

}  // namespace puna
