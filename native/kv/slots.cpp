#include "kv/slots.h"

#include <algorithm>
#include <cstring>

#include "quants/half.h"

namespace puna {
namespace {

constexpr int kScaleBytes = 2;

int64_t num_heads(const KvLayout& layout) { return layout.scales / layout.head; }

// Of rows of the 16 tokens' parts, each of so many bytes.
void copy_rows(int64_t num_rows, int64_t part_bytes, const SlotRun& run) {
  const int64_t row_bytes = kBlockTokens * part_bytes;
  if (run.count == kBlockTokens) {
    std::memmove(run.destination, run.source, static_cast<size_t>(num_rows * row_bytes));
    return;
  }
  const uint8_t* from = run.source + run.source_slot * part_bytes;
  uint8_t* to = run.destination + run.destination_slot * part_bytes;
  for (int64_t row = 0; row < num_rows; ++row, from += row_bytes, to += row_bytes)
    std::memmove(to, from, static_cast<size_t>(run.count * part_bytes));
}

void copy_scales(const KvLayout& layout, const SlotRun& run) {
  const int64_t bytes = num_heads(layout) * layout.head_scales;
  copy_rows(bytes / (kScaleBytes * kBlockTokens), kScaleBytes, run.at(layout.scales));
}

float scale_of(const uint8_t* scales, int64_t group, int slot) {
  uint16_t half;
  std::memcpy(&half, scales + (group * kBlockTokens + slot) * kScaleBytes, kScaleBytes);
  return half_to_float(half);
}

// The values of a q8_0 group.
void read_q8(const uint8_t* bytes, float scale, float* values) {
  for (int i = 0; i < kKvGroup; ++i) values[i] = static_cast<float>(bytes[i] - 128) * scale;
}

void read_q4(const uint8_t* bytes, float scale, float* values) {
  for (int i = 0; i < kKvGroup / 2; ++i) {
    values[i] = static_cast<float>((bytes[i] & 15) - 8) * scale;
    values[kKvGroup / 2 + i] = static_cast<float>((bytes[i] >> 4) - 8) * scale;
  }
}

template <auto kReadGroup, int kGroupBytes>
void read_groups(const KvLayout& layout, int64_t head_dim, const uint8_t* block, int slot, float* keys) {
  for (int64_t head = 0; head < num_heads(layout); ++head) {
    const uint8_t* words = block + head * layout.head + slot * 4;
    const uint8_t* scales = block + layout.scales + head * layout.head_scales;
    for (int64_t d = 0, group = 0; d < head_dim; d += kKvGroup, ++group) {
      uint8_t bytes[kGroupBytes];
      for (int i = 0; i < kGroupBytes; i += 4, words += 4 * kBlockTokens) std::memcpy(bytes + i, words, 4);
      float values[kKvGroup];
      kReadGroup(bytes, scale_of(scales, group, slot), values);
      keys = std::copy_n(values, std::min<int64_t>(kKvGroup, head_dim - d), keys);
    }
  }
}

}  // namespace

void copy_keys(KvType type, const KvLayout& layout, const SlotRun& run) {
  const int64_t part_bytes = type == KvType::kF16 ? 2 : 4;  // a value, or a word of quantized ones
  copy_rows(layout.scales / (part_bytes * kBlockTokens), part_bytes, run);
  copy_scales(layout, run);
}

void copy_values(const KvLayout& layout, const SlotRun& run) {
  for (int64_t head = 0; head < num_heads(layout); ++head)
    copy_rows(1, layout.head / kBlockTokens, run.at(head * layout.head));
  copy_scales(layout, run);
}

void read_keys(KvType type, const KvLayout& layout, int64_t head_dim, const uint8_t* block, int slot,
               float* keys) {
  const int64_t count = num_heads(layout) * head_dim;
  switch (type) {
    case KvType::kF16: {
      const uint16_t* stored = reinterpret_cast<const uint16_t*>(block) + slot;
      for (int64_t i = 0; i < count; ++i) keys[i] = half_to_float(stored[i * kBlockTokens]);
      return;
    }
    case KvType::kF32: {
      const float* stored = reinterpret_cast<const float*>(block) + slot;
      for (int64_t i = 0; i < count; ++i) keys[i] = stored[i * kBlockTokens];
      return;
    }
    case KvType::kQ8_0:
      return read_groups<read_q8, kKvGroup>(layout, head_dim, block, slot, keys);
    case KvType::kQ4_0:
      return read_groups<read_q4, kKvGroup / 2>(layout, head_dim, block, slot, keys);
  }
}

}  // namespace puna
