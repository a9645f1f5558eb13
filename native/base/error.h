// The one exception type of the native core. What a file or a caller got wrong is an Error with a text that
// names it; what we got wrong is an assertion.
#pragma once

#include <stdexcept>
#include <string>

namespace puna {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

}  // namespace puna
