// Between float32 and the two types of 16 bits, as ggml does: nearest, ties to even; NaN becomes a quiet one.
#include "kernels/functions.h"
#include "kernels/products/float_rows.h"
#include "kernels/quantizers/quantizers.h"

namespace puna::PUNA_ISA {
namespace {

constexpr int32_t kInfinity = 0x7f800000, kSign = (int32_t)0x80000000;

PUNA_INLINE i32x16 is_nan(i32x16 bits) { return (bits & ~kSign) > splat(kInfinity); }

// Every NaN becomes the same one, with its sign: the half float has no room for what it says.
PUNA_INLINE void store_halves(uint16_t* out, f32x16 x) {
  const i32x16 bits = (i32x16)x;
  store_f16(out, (f32x16)select(is_nan(bits), (bits & kSign) | 0x7fc00000, bits));
}

PUNA_INLINE void store_bfloats(uint16_t* out, f32x16 x) {
  const i32x16 bits = (i32x16)x;
  const u32x16 rounded = (u32x16)bits + (u32x16)(((bits >> 16) & 1) + 0x7fff);
  const u32x16 halves = select(is_nan(bits), (u32x16)bits | (u32x16)splat(0x400000), rounded) >> 16;
  store_u16(out, halves);
}

template <typename Store>
void convert(const float* x, int64_t count, uint8_t* out, Store store_16) {
  auto* halves = reinterpret_cast<uint16_t*>(out);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store_16(halves + i, load(x + i));
  if (i == count) return;
  uint16_t last[kLanes];
  store_16(last, load_partial(x + i, count - i));
  std::memcpy(halves + i, last, static_cast<size_t>(count - i) * sizeof *last);
}

template <TensorType kType>
void widen_values(const uint8_t* x, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(out + i, load_floats<kType>(x + i * kFloatBytes<kType>));
  if (i < count)
    store_partial(out + i, load_partial_floats<kType>(x + i * kFloatBytes<kType>, count - i), count - i);
}

}  // namespace

void to_f32(const float* x, int64_t count, uint8_t* out) {
  if (count > 0) std::memcpy(out, x, static_cast<size_t>(count) * sizeof *x);
}
void to_f16(const float* x, int64_t count, uint8_t* out) { convert(x, count, out, store_halves); }
void to_bf16(const float* x, int64_t count, uint8_t* out) { convert(x, count, out, store_bfloats); }

void widen(TensorType type, const uint8_t* x, int64_t count, float* out) {
  if (type == TensorType::kF16) return widen_values<TensorType::kF16>(x, count, out);
  if (type == TensorType::kBF16) return widen_values<TensorType::kBF16>(x, count, out);
  widen_values<TensorType::kF32>(x, count, out);
}

bool all_finite(const float* x, int64_t count) {
  i32x16 largest = splat(0);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) largest = max(largest, (i32x16)load(x + i) & ~kSign);
  if (i < count) largest = max(largest, (i32x16)load_partial(x + i, count - i) & ~kSign);
  return reduce_max(largest) < kInfinity;
}

}  // namespace puna::PUNA_ISA
