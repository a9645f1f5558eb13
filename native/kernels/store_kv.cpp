// One token's keys and values, or its keys alone, into its slot of a block; kv/layout.h gives the layouts.
#include "kernels/functions.h"
#include "kernels/quantize_group.h"

namespace puna::PUNA_ISA {
namespace {

PUNA_INLINE void store_stored(uint16_t* p, f32x16 v) { store_f16(p, finite_f16(v)); }
PUNA_INLINE void store_stored(float* p, f32x16 v) { store(p, v); }

// The heads' rows of K follow one another, so d runs over all of them.
template <typename T>
void store_key_floats(const float* k, int64_t n, int slot, uint8_t* block) {
  T* keys = reinterpret_cast<T*>(block) + slot;
  for (int64_t d = 0; d < n; d += kLanes) {
    T stored[kLanes];
    const int64_t count = n - d < kLanes ? n - d : kLanes;
    store_stored(stored, load_partial(k + d, count));
    for (int64_t i = 0; i < count; ++i) keys[(d + i) * kBlockTokens] = stored[i];
  }
}

template <typename T>
void store_value_floats(const float* v, int num_kv_heads, int head_dim, int slot, uint8_t* block) {
  const int64_t head_values = (int64_t)head_dim * kBlockTokens;
  for (int head = 0; head < num_kv_heads; ++head, v += head_dim) {
    T* row = reinterpret_cast<T*>(block) + head * head_values + (int64_t)slot * head_dim;
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

template <KvType kType>
constexpr int kGroupBytes = kType == KvType::kQ8_0 ? kKvGroup : kKvGroup / 2;

// The groups of one head of K.
template <KvType kType>
void store_key_groups(const float* k, int head_dim, int slot, uint8_t* keys, uint16_t* scales) {
  for (int64_t g = 0; g * kKvGroup < head_dim; ++g) {
    const Rounded key = round_group<kType>(k + g * kKvGroup, head_dim - g * kKvGroup, 128);
    uint8_t* words = keys + g * kGroupBytes<kType> * kBlockTokens + slot * 4;
    for (int i = 0; i < kGroupBytes<kType>; i += 4) std::memcpy(words + i * kBlockTokens, key.bytes + i, 4);
    scales[g * kBlockTokens + slot] = key.scale;
  }
}

template <KvType kType>
void store_value_groups(const float* v, int head_dim, int slot, uint8_t* values, uint16_t* scales) {
  const int64_t groups = (head_dim + kKvGroup - 1) / kKvGroup;
  values += slot * groups * kGroupBytes<kType>;
  for (int64_t g = 0; g < groups; ++g) {
    const Rounded value = round_group<kType>(v + g * kKvGroup, head_dim - g * kKvGroup, 0);
    std::memcpy(values + g * kGroupBytes<kType>, value.bytes, kGroupBytes<kType>);
    scales[g * kBlockTokens + slot] = value.scale;
  }
}

// store_head(row, head_dim, slot, values, scales) for each of the heads, of K or of V.
template <typename StoreHead>
PUNA_INLINE void for_heads(const KvLayout& layout, const float* rows, int head_begin, int num_heads,
                           int head_dim, int slot, uint8_t* block, StoreHead store_head) {
  for (int head = head_begin; head < head_begin + num_heads; ++head, rows += head_dim) {
    uint8_t* scales = block + layout.scales + head * layout.head_scales;
    store_head(rows, head_dim, slot, block + head * layout.head, reinterpret_cast<uint16_t*>(scales));
  }
}

}  // namespace

void store_kv(KvType type, const KvLayout& layout, const float* k, const float* v, int head, int num_kv_heads,
              int head_dim, int slot, uint8_t* k_block, uint8_t* v_block) {
  const int64_t first = head * layout.head, n = (int64_t)num_kv_heads * head_dim;
  const auto store_groups = [&](const float* rows, uint8_t* block, auto store_head) {
    for_heads(layout, rows, head, num_kv_heads, head_dim, slot, block, store_head);
  };
  switch (type) {
    case KvType::kF16:
      store_key_floats<uint16_t>(k, n, slot, k_block + first);
      if (v) store_value_floats<uint16_t>(v, num_kv_heads, head_dim, slot, v_block + first);
      break;
    case KvType::kF32:
      store_key_floats<float>(k, n, slot, k_block + first);
      if (v) store_value_floats<float>(v, num_kv_heads, head_dim, slot, v_block + first);
      break;
    case KvType::kQ8_0:
      store_groups(k, k_block, store_key_groups<KvType::kQ8_0>);
      if (v) store_groups(v, v_block, store_value_groups<KvType::kQ8_0>);
      break;
    case KvType::kQ4_0:
      store_groups(k, k_block, store_key_groups<KvType::kQ4_0>);
      if (v) store_groups(v, v_block, store_value_groups<KvType::kQ4_0>);
      break;
  }
}

}  // namespace puna::PUNA_ISA
