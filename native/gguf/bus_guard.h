// Mapped files may be cut short while they are used. Reading behind their end then raises SIGBUS, which would
// end the process, and with it what has nothing to do with that file. With the handler of
// catch_bus_errors(), the rest of the mapping becomes zeros instead, and whoever uses it is told afterwards.
#pragma once

#include <cstddef>
#include <cstdint>

namespace puna {

// A mapping of a file whose bus errors are caught.
class GuardedRange {
 public:
  GuardedRange(const void* begin, size_t size);  // Error if there are thousands already
  ~GuardedRange();
  GuardedRange(const GuardedRange&) = delete;
  GuardedRange& operator=(const GuardedRange&) = delete;

  // Whether something behind the end of the file has been read, as zeros.
  bool is_damaged() const;

 private:
  size_t slot_;
};

// Of the whole process, once. Bus errors outside of guarded ranges are handled as they were before.
void catch_bus_errors();

}  // namespace puna
