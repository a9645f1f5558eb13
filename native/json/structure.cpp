#include "json/structure.h"

#include <algorithm>

namespace puna {

namespace {

// From behind an opening quote to behind the closing one.
const char* skip_string(const char* at, const char* end) {
  for (; at < end && *at != '"'; ++at) {
    if (*at == '\\' && ++at == end) return end;
  }
  return at < end ? at + 1 : end;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

JsonStructure json_structure(std::string_view text) {
  JsonStructure found{1, 0, 0};
  size_t depth = 0;
  const char* end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    if (is_digit(*at)) {
      const char* behind = std::find_if_not(at, end, is_digit);
      found.num_digits = std::max(found.num_digits, static_cast<size_t>(behind - at));
      at = behind;
      continue;
    }
    switch (*at++) {
      case '"':
        at = skip_string(at, end);
        break;
      case ',':
      case ':':
        ++found.num_values;
        break;
      case '[':
      case '{':
        ++found.num_values;
        found.depth = std::max(found.depth, ++depth);
        break;
      case ']':
      case '}':
        depth -= depth > 0;
        break;
      default:
        break;
    }
  }
  return found;
}

}  // namespace puna
