#include "gguf/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"

namespace puna {
namespace {

Error system_error(const char* what) { return Error(std::string(what) + ": " + std::strerror(errno)); }

}  // namespace

RegularFile::RegularFile(int descriptor) : descriptor_(fcntl(descriptor, F_DUPFD_CLOEXEC, 0)) {
  if (descriptor_.get() < 0) throw system_error("cannot use the descriptor");
  struct stat status;
  if (fstat(descriptor_.get(), &status) != 0) throw system_error("cannot examine the file");
  if (!S_ISREG(status.st_mode)) throw Error("not a regular file");
  if (status.st_size == 0) throw Error("the file is empty");
  size_ = static_cast<uint64_t>(status.st_size);
}

void RegularFile::read(uint64_t offset, std::span<uint8_t> out) const {
  while (!out.empty()) {
    const ssize_t count = pread(descriptor_.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error("cannot read the file");
    if (count == 0) throw Error("the file was cut short while it was read");
    offset += static_cast<uint64_t>(count);
    out = out.subspan(static_cast<size_t>(count));
  }
}

}  // namespace puna
