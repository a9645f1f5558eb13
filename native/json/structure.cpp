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

}  // namespace

JsonStructure json_structure(std::string_view text) {
  JsonStructure found{1, 0};
  size_t depth = 0;
  const char* end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
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
