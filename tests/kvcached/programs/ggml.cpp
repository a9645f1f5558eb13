// A tensor in the kvcached buffer type is as good as one in ggml's own.
#include "ggml.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "check.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml_kvcached.h"

namespace {

constexpr int64_t kCols = 128, kRows = 96, kTokens = 5;

std::vector<float> numbers(int64_t count, float step) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(step * static_cast<float>(i));
  return values;
}

// keys (f16, in a buffer of this type) times queries: what attention does with a KV cache.
std::vector<float> multiply(ggml_backend_t backend, ggml_backend_buffer_type_t type, kvcached_ctx_t ctx) {
  ggml_init_params parameters = {ggml_tensor_overhead() * 16 + ggml_graph_overhead(), nullptr, true};
  ggml_context* context = ggml_init(parameters);
  ggml_tensor* keys = ggml_new_tensor_2d(context, GGML_TYPE_F16, kCols, kRows);
  ggml_tensor* queries = ggml_new_tensor_2d(context, GGML_TYPE_F32, kCols, kTokens);
  ggml_tensor* scores = ggml_mul_mat(context, keys, queries);
  ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(context, type);
  CHECK(buffer != nullptr);
  CHECK(ggml_backend_buffer_get_type(buffer) == type && ggml_backend_buffer_is_host(buffer));
  if (ctx != nullptr) {
    const kvcached_stats_t stats = stats_of(ctx);
    CHECK(stats.num_allocations == 1 && stats.committed_bytes >= ggml_nbytes(keys) + ggml_nbytes(queries));
  }
  ggml_backend_buffer_clear(buffer, 0);
  std::vector<ggml_fp16_t> halves(static_cast<size_t>(kCols * kRows));
  ggml_fp32_to_fp16_row(numbers(kCols * kRows, 0.37f).data(), halves.data(), kCols * kRows);
  ggml_backend_tensor_set(keys, halves.data(), 0, ggml_nbytes(keys));
  ggml_backend_tensor_set(queries, numbers(kCols * kTokens, 0.11f).data(), 0, ggml_nbytes(queries));

  std::vector<ggml_fp16_t> read(halves.size());
  ggml_backend_tensor_get(keys, read.data(), 0, ggml_nbytes(keys));
  CHECK(std::memcmp(read.data(), halves.data(), ggml_nbytes(keys)) == 0);

  ggml_cgraph* graph = ggml_new_graph(context);
  ggml_build_forward_expand(graph, scores);
  CHECK(ggml_backend_graph_compute(backend, graph) == GGML_STATUS_SUCCESS);
  std::vector<float> result(static_cast<size_t>(kRows * kTokens));
  ggml_backend_tensor_get(scores, result.data(), 0, ggml_nbytes(scores));
  ggml_backend_buffer_free(buffer);
  ggml_free(context);
  return result;
}

}  // namespace

int main() {
  ggml_backend_t backend = ggml_backend_cpu_init();
  kvcached_ctx_t ctx = kvcached_init(0), other = kvcached_init(0);
  ggml_backend_buffer_type_t type = ggml_backend_kvcached_buffer_type(ctx);
  CHECK(type != nullptr);
  CHECK(std::strcmp(ggml_backend_buft_name(type), "KVCACHED") == 0 && ggml_backend_buft_is_host(type));
  CHECK(ggml_backend_supports_buft(backend, type));
  CHECK(ggml_backend_kvcached_buffer_type(ctx) == type);
  CHECK(ggml_backend_kvcached_buffer_type(other) != type);

  const std::vector<float> own = multiply(backend, ggml_backend_cpu_buffer_type(), nullptr);
  CHECK(own[1] != 0);
  CHECK(multiply(backend, type, ctx) == own);
  CHECK(stats_of(ctx).committed_bytes == 0 && stats_of(ctx).peak_committed_bytes > 0);

  // Not beyond the limit.
  kvcached_set_limit(ctx, 3 * MIB);
  CHECK(ggml_backend_buft_get_max_size(type) == 3 * MIB);
  ggml_backend_buffer_t first = ggml_backend_buft_alloc_buffer(type, 2 * MIB);
  CHECK(first != nullptr && ggml_backend_buffer_get_size(first) == 2 * MIB);
  CHECK(ggml_backend_buft_alloc_buffer(type, 2 * MIB) == nullptr);
  CHECK_ERROR(KVCACHED_ERR_LIMIT, "exceed the limit");
  ggml_backend_buffer_free(first);
  CHECK(stats_of(ctx).committed_bytes == 0);

  kvcached_shutdown(other);
  kvcached_shutdown(ctx);
  ggml_backend_free(backend);
  return 0;
}
