// Looking up 32-bit words in tables of any size.
#pragma once

#include "simd/simd.h"

namespace puna::PUNA_ISA {

// Lane i: the word at table + index[i] * kStride bytes.
template <int kStride>
PUNA_INLINE u32x16 look_up_words(const uint8_t* table, u32x16 index) {
#if defined(PUNA_AVX512)
  return (u32x16)_mm512_i32gather_epi32((__m512i)index, table, kStride);
#else
  int32_t indices[kLanes], words[kLanes];
  store(indices, (i32x16)index);
  for (int i = 0; i < kLanes; ++i) std::memcpy(words + i, table + indices[i] * kStride, sizeof words[i]);
  return (u32x16)load(words);
#endif
}

}  // namespace puna::PUNA_ISA
