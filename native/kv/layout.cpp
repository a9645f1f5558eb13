#include "kv/layout.h"

#include "base/error.h"

namespace puna {
namespace {

constexpr int64_t kAlignment = 64;

}  // namespace

KvLayout kv_layout(KvType type, int64_t num_kv_heads, int64_t head_dim) {
  const int64_t groups = (head_dim + kKvGroup - 1) / kKvGroup, values = groups * kKvGroup * kBlockTokens;
  KvLayout layout = {};
  switch (type) {
    case KvType::kF16: layout.head = head_dim * kBlockTokens * 2; break;
    case KvType::kF32: layout.head = head_dim * kBlockTokens * 4; break;
    case KvType::kQ8_0: layout.head = values; break;
    case KvType::kQ4_0: layout.head = values / 2; break;
  }
  const bool has_scales = type == KvType::kQ8_0 || type == KvType::kQ4_0;
  layout.head_scales = has_scales ? groups * kBlockTokens * 2 : 0;
  layout.scales = num_kv_heads * layout.head;
  const int64_t bytes = layout.scales + num_kv_heads * layout.head_scales;
  layout.bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return layout;
}

KvType kv_type_named(const std::string& name) {
  if (name == "f16") return KvType::kF16;
  if (name == "f32") return KvType::kF32;
  if (name == "q8_0") return KvType::kQ8_0;
  if (name == "q4_0") return KvType::kQ4_0;
  throw Error("unknown type of keys and values \"" + name + "\" (f16, f32, q8_0, q4_0)");
}

}  // namespace puna
