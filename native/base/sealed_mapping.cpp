#include "base/sealed_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"

namespace puna {

SealedMapping::SealedMapping(int fd) {
  constexpr int kSeals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) throw Error("the descriptor is not of sealed memory");
  struct stat status;
  if (fstat(fd, &status) != 0 || status.st_size <= 0) throw Error("the sealed memory is empty");
  size_ = static_cast<size_t>(status.st_size);
  void* data = mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) throw Error(std::string("sealed memory cannot be mapped: ") + std::strerror(errno));
  data_ = static_cast<const uint8_t*>(data);
}

SealedMapping::~SealedMapping() { munmap(const_cast<uint8_t*>(data_), size_); }

}  // namespace puna
