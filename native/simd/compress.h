// Values that are wanted, moved together.
#pragma once

#include "simd/simd.h"

namespace puna::PUNA_ISA {

// Of 16 places, copies a[i] and b[i] + b_offset where score[i] is in [lowest, highest], in order. Returns how
// many; the rest of the 16 places behind each output is overwritten too. Outputs may lie at or before a and
// b.
PUNA_INLINE int64_t store_in_range(const float* score, float lowest, float highest, const float* a,
                                   const int32_t* b, int32_t b_offset, float* a_out, int32_t* b_out) {
#if defined(PUNA_AVX512)
  const __m512 scores = _mm512_loadu_ps(score);
  const __mmask16 mask =
      _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(scores, _mm512_set1_ps(lowest), _CMP_GE_OQ), scores,
                              _mm512_set1_ps(highest), _CMP_LE_OQ);
  if (mask == 0) return 0;
  // Compressed in a register first: straight to memory is an order of magnitude slower on AMD's processors.
  const f32x16 a_selected = (f32x16)_mm512_maskz_compress_ps(mask, (__m512)load(a));
  const i32x16 b_selected = (i32x16)_mm512_maskz_compress_epi32(mask, (__m512i)(load(b) + b_offset));
  store(a_out, a_selected);
  store(b_out, b_selected);
  return __builtin_popcount(mask);
#else
  int64_t n = 0;
  for (int i = 0; i < 16; ++i) {
    const bool selected =
        (score[i] >= lowest) & (score[i] <= highest);  // before the outputs, which may be it
    a_out[n] = a[i];
    b_out[n] = b[i] + b_offset;
    n += selected;
  }
  return n;
#endif
}

}  // namespace puna::PUNA_ISA
