#include "kernels/functions.h"
#include "kernels/products/float_rows.h"

namespace puna::PUNA_ISA {
namespace {

inline constexpr int kBlockRows = 32;  // multiplied with a group's activations while those are in the cache
inline constexpr int64_t kCachedActivations = 6144;

// Rows [row, row + num_rows) of a group's tokens. kFirst: of the first group, which finds the weights in
// memory.
template <TensorType kType, bool kFirst>
void linear_group(const LinearArgs& args, int64_t row, int64_t num_rows, int64_t token, int64_t num_tokens) {
  const Weight& weight = *args.weight;
  const int64_t x_stride = args.x_stride / (int64_t)sizeof(float);
  const auto* all = static_cast<const float*>(args.x);
  const int64_t chunk = kCachedActivations / num_tokens / kLanes * kLanes;
  TokenSums sums[kBlockRows];
  // The last rows are added up 16 at a time, whether they are there or not.
  for (int64_t r = num_rows; r % kLanes != 0; ++r) std::memset(sums[r], 0, sizeof sums[r]);
  for (int64_t k = 0; k < weight.cols; k += chunk) {
    const float* x[kFloatTokens];
    for (int64_t t = 0; t < num_tokens; ++t)
      x[t] = all + (args.x_rows ? args.x_rows[token + t] : token + t) * x_stride + k;
    const int64_t columns = weight.cols - k < chunk ? weight.cols - k : chunk;
    multiply_group<kType, kFirst>(num_rows, num_tokens, weight.row(row) + k * kFloatBytes<kType>,
                                  (int64_t)weight.row_bytes, x, columns, k == 0, sums);
  }
  store_group(args, sums, row, num_rows, token, num_tokens);
}

template <TensorType kType>
void linear_rows(const LinearArgs& args) {
  for (int64_t row = args.row_begin; row < args.row_end; row += kBlockRows) {
    const int64_t rows = args.row_end - row < kBlockRows ? args.row_end - row : kBlockRows;
    for (int64_t token = 0; token < args.num_tokens; token += kFloatTokens) {
      const int64_t tokens = args.num_tokens - token < kFloatTokens ? args.num_tokens - token : kFloatTokens;
      const auto group = token == 0 ? linear_group<kType, true> : linear_group<kType, false>;
      group(args, row, rows, token, tokens);
    }
  }
}

}  // namespace

void linear_float(const LinearArgs& args) {
  switch (args.weight->type) {
    case TensorType::kF32:
      return linear_rows<TensorType::kF32>(args);
    case TensorType::kF16:
      return linear_rows<TensorType::kF16>(args);
    default:
      return linear_rows<TensorType::kBF16>(args);
  }
}

}  // namespace puna::PUNA_ISA
