// How a layer's keys and values lie in a block of 16 tokens. K and V take the same room, K first; where
// values are columns of the keys (latents), there is no V.
#pragma once

#include <cstdint>
#include <string>

namespace puna {

inline constexpr int kBlockTokens = 16;  // tokens of one KV block; also the lanes of a vector
inline constexpr int kKvGroup = 32;      // values that share a scale, in the quantized types

// Types in which keys and values are stored. The quantized types keep a half float scale per 32 values of a
// head, as GGML's types of these names do, and round alike; the last group of a head may hold fewer values.
//
// Per KV head, one head after the other ([][4] are the 4 values of a word that a dot product takes at once):
//
//         K                                               V
//   f16   [head_dim][16 tokens]                           [16 tokens][head_dim]
//   f32   the same
//   q8_0  [groups][8][16 tokens][4], value + 128 as u8    [16 tokens][groups][32], value as s8
//   q4_0  [groups][4][16 tokens][4], value + 8 as nibble  [16 tokens][groups][16], value + 8 as nibble
//
// Byte i of the 16 of a q4_0 group holds value i in its low nibble and value 16 + i in its high one. The
// scales, [groups][16 tokens] per head, come behind all heads' values.
enum class KvType : int { kF16 = 0, kF32 = 1, kQ8_0 = 2, kQ4_0 = 3 };

// In bytes, the same for K and for V.
struct KvLayout {
  int64_t head;         // values of a head
  int64_t scales;       // start of the first head's scales
  int64_t head_scales;  // scales of a head; 0 for f16 and f32
  int64_t bytes;        // of K; a multiple of 64
};

KvLayout kv_layout(KvType type, int64_t num_kv_heads, int64_t head_dim);

// Throws Error for a name that is none of f16, f32, q8_0, q4_0.
KvType kv_type_named(const std::string& name);

}  // namespace puna
