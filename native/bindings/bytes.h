// Python's bytes as the core has them, and back.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>

namespace puna {

// Valid as long as `bytes` is.
inline std::string_view view(const nanobind::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

inline nanobind::bytes to_bytes(std::string_view text) { return nanobind::bytes(text.data(), text.size()); }

}  // namespace puna
