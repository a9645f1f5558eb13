// The tensor types of GGUF: numbers and block shapes as in ggml.h / docs/gguf.md of the ggml project.
#pragma once

#include <cstddef>
#include <cstdint>

namespace puna {

enum class TensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
  kQ1_0 = 41,
  kQ2_0 = 42,
};

struct TypeTraits {
  const char* name;    // "Q4_K"
  int block_elements;  // values per block; rows are a multiple of it
  int block_bytes;
};

// nullptr for a type that this build does not know. Also known are ggml's types that are not in the enum
// above: their tensors have a name and a size, but cannot be computed with.
const TypeTraits* type_traits(TensorType type);

inline bool is_float(TensorType type) {
  return type == TensorType::kF32 || type == TensorType::kF16 || type == TensorType::kBF16;
}

// True for the types of the enum above.
bool can_dequantize(TensorType type);

// A read-only view of a two-dimensional weight: `rows` rows of `cols` values, each row contiguous.
struct Weight {
  TensorType type;
  const uint8_t* data;
  int64_t rows;
  int64_t cols;
  size_t row_bytes;

  const uint8_t* row(int64_t r) const { return data + static_cast<size_t>(r) * row_bytes; }
};

// Equally large weights, one for each head or expert.
struct WeightStack {
  Weight first;
  int64_t count;
  size_t stride;                          // bytes from one to the next, where they lie together
  const uint8_t* const* apart = nullptr;  // else where each begins, its first row perhaps before `first`'s

  Weight at(int64_t i) const {
    Weight weight = first;
    weight.data =
        apart == nullptr ? first.data + static_cast<size_t>(i) * stride : apart[i] + (first.data - apart[0]);
    return weight;
  }
};

// One row or any whole number of blocks to float32; exact as ggml's reference. num_values: a multiple of
// the type's block_elements. Error unless can_dequantize(type).
void dequantize(TensorType type, const uint8_t* src, float* dst, int64_t num_values);

}  // namespace puna
