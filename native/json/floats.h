// Many floats as JSON, each in as few digits as tell it from all other floats: as a double it would have
// twice as many.
#pragma once

#include <span>
#include <string>

namespace puna {

// An array. Error for a number that JSON has no way to write.
std::string json_array(std::span<const float> values);

}  // namespace puna
