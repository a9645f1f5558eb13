// Errors of this code itself. Python sees an AssertionError: books that are wrong must not be used, but the
// process lives.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace puna {

class AssertionFailure : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// `text` and, if it is not negative, the number that it is about.
inline void require(bool holds, const char* text, int64_t about = -1) {
  if (holds) [[likely]]
    return;
  throw AssertionFailure(about < 0 ? std::string(text) : text + (" " + std::to_string(about)));
}

}  // namespace puna
