#include "kvcached/interface/last_error.h"

#include <cstdio>

namespace puna::kvcached {
namespace {

thread_local int last_status = KVCACHED_OK;
thread_local char last_message[256] = "";

}  // namespace

void set_last_error(int status, const char* message) noexcept {
  last_status = status;
  std::snprintf(last_message, sizeof last_message, "%s", message);
}

}  // namespace puna::kvcached

int kvcached_last_error(void) { return puna::kvcached::last_status; }

const char* kvcached_last_error_message(void) { return puna::kvcached::last_message; }

const char* kvcached_strerror(int status) {
  switch (status) {
    case KVCACHED_OK:
      return "success";
    case KVCACHED_DEFERRED:
      return "the limit is below what is committed, and applies as that is freed";
    case KVCACHED_ERR_INVALID_ARGUMENT:
      return "an argument makes no sense";
    case KVCACHED_ERR_UNKNOWN_HANDLE:
      return "no such context or pool";
    case KVCACHED_ERR_UNKNOWN_POINTER:
      return "no such allocation, or already freed";
    case KVCACHED_ERR_UNKNOWN_BLOCK:
      return "no such block, or not allocated";
    case KVCACHED_ERR_LIMIT:
      return "the limit would be exceeded";
    case KVCACHED_ERR_NO_MEMORY:
      return "the system does not have the memory";
    case KVCACHED_ERR_NO_BLOCKS:
      return "not enough free blocks";
    case KVCACHED_ERR_NO_DEVICE:
      return "no such device";
    case KVCACHED_ERR_NOT_INITIALIZED:
      return "not initialized";
    case KVCACHED_ERR_ALREADY_INITIALIZED:
      return "already initialized";
    default:
      return "unknown status";
  }
}
