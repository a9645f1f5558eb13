// Errors about what a file or a caller asked for.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"

namespace puna {

inline std::string text(int64_t value) { return std::to_string(value); }

inline void require(bool condition, const std::string& message) {
  if (!condition) throw Error(message);
}

inline void require_range(const char* name, int64_t value, int64_t low, int64_t high) {
  require(value >= low && value <= high,
          std::string(name) + " is " + text(value) + ", not between " + text(low) + " and " + text(high));
}

}  // namespace puna
