#include "json/floats.h"

#include <charconv>
#include <cmath>

#include "base/error.h"

namespace puna {

std::string json_array(std::span<const float> values) {
  constexpr size_t kMostChars = 16;  // "-1.17549435e-38", and a comma
  std::string text(values.size() * kMostChars + 2, '[');
  char *at = text.data() + 1, *end = text.data() + text.size();
  for (const float value : values) {
    if (!std::isfinite(value)) throw Error("NaN and infinity are no JSON");
    at = std::to_chars(at, end, value).ptr;
    *at++ = ',';
  }
  if (!values.empty()) --at;
  *at++ = ']';
  text.resize(static_cast<size_t>(at - text.data()));
  return text;
}

}  // namespace puna
