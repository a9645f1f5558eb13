#include "gguf/file_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace puna {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

Error system_error(const char* what) { return Error(std::string(what) + ": " + std::strerror(errno)); }

}  // namespace

FileMapping::FileMapping(const std::string& path) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) throw system_error("cannot open the file");
  struct stat status;
  if (fstat(file.fd, &status) != 0) throw system_error("cannot examine the file");
  if (!S_ISREG(status.st_mode)) throw Error("not a regular file");
  if (status.st_size == 0) throw Error("the file is empty");
  const size_t size = static_cast<size_t>(status.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd, 0);
  if (data == MAP_FAILED) throw system_error("cannot map the file");
  data_ = static_cast<const uint8_t*>(data);
  size_ = size;
}

void FileMapping::release_pages() const { madvise(const_cast<uint8_t*>(data_), size_, MADV_DONTNEED); }

FileMapping::~FileMapping() { munmap(const_cast<uint8_t*>(data_), size_); }

}  // namespace puna
