// How large a JSON text becomes when it is decoded, known before it is.
#pragma once

#include <cstddef>
#include <string_view>

namespace puna {

struct JsonStructure {
  size_t num_values = 0;
  size_t depth = 0;
  size_t num_digits = 0;  // of the longest run of digits that is in no string
};

// Counts values, keys of objects included, and how deep arrays and objects lie in each other. Of what is no
// JSON it counts no less than a decoder would meet before it finds that out.
JsonStructure json_structure(std::string_view text);

}  // namespace puna
