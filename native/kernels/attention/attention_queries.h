// Queries in the order in which they meet the keys. Part of attention.cpp.
#pragma once

#include "kernels/attention/attention_rows.h"
#include "kernels/quantize_group.h"

namespace puna::PUNA_ISA {
namespace {

// For float keys. factor: what makes scores of products.
template <int kRows>
void scale_queries(Rows& rows, int first, int64_t head_dim, float factor) {
  float* q = rows.q + first * rows.q_values;
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    for (int r = 0; r < kRows; ++r, q += kLanes) {
      const float* from = rows.row[first + r].q + d;
      const int64_t rest = head_dim - d;
      store(q, (rest < kLanes ? load_partial(from, rest) : load(from)) * factor);
    }
  }
}

// For quantized keys.
template <KvType kType, int kRows>
void round_queries(Rows& rows, int first, int64_t head_dim, float factor) {
  constexpr int32_t kBias = kType == KvType::kQ8_0 ? 128 : 8;
  int64_t at = first * rows.q_values / kKvGroup;
  for (int64_t d = 0; d < head_dim; d += kKvGroup) {
    for (int r = 0; r < kRows; ++r, ++at) {
      i32x16 low, high;
      rows.q_scale[at] = quantize_q8(load_group(rows.row[first + r].q + d, head_dim - d), low, high) * factor;
      uint8_t* bytes = reinterpret_cast<uint8_t*>(rows.rounded_q + at * kKvGroup);
      store_bytes(bytes, low);
      store_bytes(bytes + kLanes, high);
      rows.q_offset[at] = -kBias * (int32_t)reduce_add(to_float(low + high));
    }
  }
}

template <KvType kType>
void prepare_queries(Rows& rows, int64_t head_dim, float factor) {
  in_register_rows<kRegisterRows>(0, rows.count, [&](auto count, int first) {
    if constexpr (is_float(kType))
      scale_queries<count.value>(rows, first, head_dim, factor);
    else
      round_queries<kType, count.value>(rows, first, head_dim, factor);
  });
}

}  // namespace
}  // namespace puna::PUNA_ISA
