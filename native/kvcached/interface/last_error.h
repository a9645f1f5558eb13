// The status of a thread's last call, and how exceptions become one.
#pragma once

#include <exception>

#include "kvcached/failure.h"

namespace puna::kvcached {

void set_last_error(int status, const char* message) noexcept;

// Runs the body of a public function: `failed` if it throws.
template <typename Result, typename Body>
Result guarded(Result failed, Body body) noexcept {
  set_last_error(KVCACHED_OK, "");
  try {
    return body();
  } catch (const Failure& failure) {
    set_last_error(failure.status(), failure.what());
  } catch (const std::exception& error) {  // what the system refused: addresses, pages, or our own records
    set_last_error(KVCACHED_ERR_NO_MEMORY, error.what());
  }
  return failed;
}

// The same for functions that return a status.
template <typename Body>
int guarded_status(Body body) noexcept {
  guarded(false, [&] {
    body();
    return true;
  });
  return kvcached_last_error();
}

}  // namespace puna::kvcached
