// Memory for pages, before it is written.
#pragma once

#include <cstdint>

namespace puna {

// Brings memory for all pages that the range touches; contents that they have stay. Returns 0, or what went
// wrong as an errno, after which some pages may have come.
int populate_pages(uint8_t* begin, int64_t bytes);

}  // namespace puna
