// Tokens and blocks as arrays of NumPy.
#pragma once

#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kv/tree/prefix_node.h"

namespace puna {

using TokenArray =
    nanobind::ndarray<const int32_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using BlockArray = nanobind::ndarray<nanobind::numpy, int32_t, nanobind::ndim<1>>;

inline Tokens view(const TokenArray& tokens) { return {tokens.data(), tokens.shape(0)}; }

inline nanobind::bytes bytes_of(Tokens tokens) {
  return nanobind::bytes(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes());
}

// Blocks that are not held become 0.
inline void fill(const std::vector<int32_t>& blocks, int32_t* row) {
  std::ranges::transform(blocks, row, [](int32_t block) { return std::max(block, 0); });
}

inline BlockArray array_of(const std::vector<int32_t>& blocks) {
  auto* data = new int32_t[std::max<size_t>(blocks.size(), 1)];
  fill(blocks, data);
  nanobind::capsule owner(data, [](void* p) noexcept { delete[] static_cast<int32_t*>(p); });
  return BlockArray(data, {blocks.size()}, owner);
}

}  // namespace puna
