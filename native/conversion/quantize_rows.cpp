#include "conversion/quantize_rows.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"

namespace puna {
namespace {

// Both are whole numbers of any type's blocks. A tile stays in the first cache from being widened to being
// rounded; a chunk is what a thread takes, and writes, at a time.
constexpr int64_t kTileValues = 1 << 12, kChunkValues = 1 << 18;

int64_t num_values(const RowsToQuantize& rows) {
  return static_cast<int64_t>(rows.data.size()) / type_traits(rows.source)->block_bytes;
}

size_t bytes_of(TensorType type, int64_t values) {
  const TypeTraits& traits = *type_traits(type);
  return static_cast<size_t>(values / traits.block_elements * traits.block_bytes);
}

bool has_scales(TensorType type) { return !is_float(type); }

// Values [begin, end) to out.
void quantize_chunk(const Kernels& kernels, const RowsToQuantize& rows, int64_t begin, int64_t end,
                    bool is_checked, uint8_t* out) {
  alignas(64) float values[kTileValues];
  for (int64_t i = begin; i < end; i += kTileValues) {
    const int64_t count = std::min(kTileValues, end - i);
    kernels.widen(rows.source, rows.data.data() + bytes_of(rows.source, i), count, values);
    if (is_checked && !kernels.all_finite(values, count))
      throw Error("there are weights that are infinite or not a number");
    kernels.quantize_weights(rows.type, values, count, out);
    out += bytes_of(rows.type, count);
  }
}

void for_each_chunk(ThreadPool& pool, const RowsToQuantize& rows,
                    const std::function<void(int64_t begin, int64_t end)>& body) {
  const int64_t count = num_values(rows);
  pool.parallel_for((count + kChunkValues - 1) / kChunkValues, [&](int64_t chunk) {
    body(chunk * kChunkValues, std::min(count, (chunk + 1) * kChunkValues));
  });
}

void write_all(int descriptor, const uint8_t* data, size_t size, int64_t offset) {
  while (size > 0) {
    const ssize_t written = pwrite(descriptor, data, size, offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw std::system_error(errno, std::generic_category());
    data += written;
    size -= static_cast<size_t>(written);
    offset += written;
  }
}

}  // namespace

size_t quantized_bytes(const RowsToQuantize& rows) {
  const TypeTraits* traits = type_traits(rows.type);
  if (traits == nullptr || !select_kernels("portable").quantize_weights(rows.type, nullptr, 0, nullptr))
    throw Error("there is no quantizer of the type");
  if (!is_float(rows.source)) throw Error("only F32, F16 and BF16 can be quantized");
  const int64_t values = num_values(rows);
  if (bytes_of(rows.source, values) != rows.data.size() || rows.cols < 1 || values % rows.cols != 0)
    throw Error("there are no whole rows");
  if (rows.cols % traits->block_elements != 0)
    throw Error("rows of " + std::to_string(rows.cols) + " values cannot be " + traits->name +
                ", which has blocks of " + std::to_string(traits->block_elements));
  return bytes_of(rows.type, values);
}

void quantize_rows(ThreadPool& pool, const Kernels& kernels, const RowsToQuantize& rows, uint8_t* out) {
  for_each_chunk(pool, rows, [&](int64_t begin, int64_t end) {
    quantize_chunk(kernels, rows, begin, end, false, out + bytes_of(rows.type, begin));
  });
}

void write_quantized_rows(ThreadPool& pool, const Kernels& kernels, const RowsToQuantize& rows,
                          int descriptor, int64_t offset) {
  quantized_bytes(rows);
  for_each_chunk(pool, rows, [&](int64_t begin, int64_t end) {
    std::vector<uint8_t> bytes(bytes_of(rows.type, end - begin));
    quantize_chunk(kernels, rows, begin, end, has_scales(rows.type), bytes.data());
    write_all(descriptor, bytes.data(), bytes.size(),
              offset + static_cast<int64_t>(bytes_of(rows.type, begin)));
  });
}

}  // namespace puna
