// One token's keys and values into its slot of a block; kv/layout.h gives the layouts.
#include "kernels/functions.h"
#include "kernels/quantize_group.h"

namespace puna::PUNA_ISA {
namespace {

PUNA_INLINE void store_stored(uint16_t* p, f32x16 v) { store_f16(p, finite_f16(v)); }
PUNA_INLINE void store_stored(float* p, f32x16 v) { store(p, v); }

template <typename T>
void store_floats(const float* k, const float* v, int num_kv_heads, int head_dim, int slot, uint8_t* k_block,
                  uint8_t* v_block) {
  T* keys = reinterpret_cast<T*>(k_block) + slot;
  const int64_t head_values = (int64_t)head_dim * kBlockTokens;
  // The heads' rows of K follow one another, so d runs over all of them.
  for (int64_t d = 0, n = (int64_t)num_kv_heads * head_dim; d < n; d += kLanes) {
    T stored[kLanes];
    const int64_t count = n - d < kLanes ? n - d : kLanes;
    store_stored(stored, load_partial(k + d, count));
    for (int64_t i = 0; i < count; ++i) keys[(d + i) * kBlockTokens] = stored[i];
  }
  for (int head = 0; head < num_kv_heads; ++head, v += head_dim) {
    T* row = reinterpret_cast<T*>(v_block) + head * head_values + (int64_t)slot * head_dim;
    for (int64_t d = 0; d < head_dim; d += kLanes) {
      T stored[kLanes];
      const int64_t count = head_dim - d < kLanes ? head_dim - d : kLanes;
      store_stored(stored, load_partial(v + d, count));
      std::memcpy(row + d, stored, (size_t)count * sizeof(T));
    }
  }
}

// A group's rounded values as bytes and its scale.
struct Rounded {
  uint8_t bytes[kKvGroup];  // q4_0: the first half only
  uint16_t scale;
};

// bias: what a q8_0 byte is higher than the value.
template <KvType kType>
PUNA_INLINE Rounded round_group(const float* x, int64_t count, int32_t bias) {
  Rounded group;
  i32x16 low, high;
  float scale;
  if constexpr (kType == KvType::kQ8_0) {
    scale = quantize_q8(load_group(x, count), low, high);
    store_bytes(group.bytes, low + bias);
    store_bytes(group.bytes + kLanes, high + bias);
  } else {
    scale = quantize_q4(load_group(x, count), low, high);
    store_bytes(group.bytes, low | (high << 4));
  }
  uint16_t halves[kLanes];
  store_f16(halves, splat(scale));
  group.scale = halves[0];
  return group;
}

// The groups of one head of K and of V.
template <KvType kType>
void store_head(const float* k, const float* v, int head_dim, int slot, uint8_t* keys, uint16_t* key_scales,
                uint8_t* values, uint16_t* value_scales) {
  constexpr int kBytes = kType == KvType::kQ8_0 ? kKvGroup : kKvGroup / 2;
  const int groups = (head_dim + kKvGroup - 1) / kKvGroup;
  values += (int64_t)slot * groups * kBytes;
  for (int g = 0; g < groups; ++g) {
    const int64_t count = head_dim - g * kKvGroup;
    const Rounded key = round_group<kType>(k + g * kKvGroup, count, 128);
    uint8_t* words = keys + (int64_t)g * kBytes * kBlockTokens + slot * 4;
    for (int i = 0; i < kBytes; i += 4) std::memcpy(words + i * kBlockTokens, key.bytes + i, 4);
    key_scales[g * kBlockTokens + slot] = key.scale;
    const Rounded value = round_group<kType>(v + g * kKvGroup, count, 0);
    std::memcpy(values + g * kBytes, value.bytes, kBytes);
    value_scales[g * kBlockTokens + slot] = value.scale;
  }
}

template <KvType kType>
void store_groups(const KvLayout& layout, const float* k, const float* v, int head_begin, int num_kv_heads,
                  int head_dim, int slot, uint8_t* k_block, uint8_t* v_block) {
  for (int head = head_begin; head < head_begin + num_kv_heads; ++head, k += head_dim, v += head_dim) {
    const int64_t at = head * layout.head, scales = layout.scales + head * layout.head_scales;
    store_head<kType>(k, v, head_dim, slot, k_block + at, reinterpret_cast<uint16_t*>(k_block + scales),
                      v_block + at, reinterpret_cast<uint16_t*>(v_block + scales));
  }
}

}  // namespace

void store_kv(KvType type, const KvLayout& layout, const float* k, const float* v, int head, int num_kv_heads,
              int head_dim, int slot, uint8_t* k_block, uint8_t* v_block) {
  uint8_t* keys = k_block + head * layout.head;
  uint8_t* values = v_block + head * layout.head;
  switch (type) {
    case KvType::kF16:
      return store_floats<uint16_t>(k, v, num_kv_heads, head_dim, slot, keys, values);
    case KvType::kF32:
      return store_floats<float>(k, v, num_kv_heads, head_dim, slot, keys, values);
    case KvType::kQ8_0:
      return store_groups<KvType::kQ8_0>(layout, k, v, head, num_kv_heads, head_dim, slot, k_block, v_block);
    case KvType::kQ4_0:
      return store_groups<KvType::kQ4_0>(layout, k, v, head, num_kv_heads, head_dim, slot, k_block, v_block);
  }
}

}  // namespace puna::PUNA_ISA
