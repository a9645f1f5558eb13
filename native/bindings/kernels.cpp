// Single kernels, for tests and measurements; models run through the executor.
#include "kernels/kernels.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "bindings/bindings.h"
#include "gguf/gguf_file.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace puna {
namespace {

using FloatMatrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using FloatVector = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutMatrix = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

std::vector<uint8_t> quantize(const Kernels& kernels, const FloatMatrix& x) {
  const int64_t cols = static_cast<int64_t>(x.shape(1)), row_bytes = kernels.quantized_row_bytes(cols);
  std::vector<uint8_t> rows(x.shape(0) * static_cast<size_t>(row_bytes));
  for (int64_t t = 0; t < static_cast<int64_t>(x.shape(0)); ++t)
    kernels.quantize_row(x.data() + t * cols, cols, rows.data() + t * row_bytes);
  return rows;
}

OutMatrix linear(const GgufFile& file, std::string_view name, const FloatMatrix& x, const std::string& isa,
                 const std::optional<FloatVector>& bias, const std::optional<FloatMatrix>& residual) {
  const Kernels& kernels = select_kernels(isa.c_str());
  const Weight weight = file.weight(name);
  const size_t tokens = x.shape(0), rows = static_cast<size_t>(weight.rows);
  if (static_cast<int64_t>(x.shape(1)) != weight.cols)
    throw Error("x has " + std::to_string(x.shape(1)) + " columns, the weight " +
                std::to_string(weight.cols));
  if (bias && bias->shape(0) != rows) throw Error("the bias needs one value per row of the weight");
  if (residual && (residual->shape(0) != tokens || residual->shape(1) != rows))
    throw Error("the residual needs the shape of the result");
  std::unique_ptr<float[]> out(new float[tokens * rows]);
  {
    const nb::gil_scoped_release release;
    const bool quantized = needs_quantized_input(weight.type);
    const std::vector<uint8_t> quantized_x = quantized ? quantize(kernels, x) : std::vector<uint8_t>();
    kernels.linear({
        .weight = &weight,
        .x = quantized ? static_cast<const void*>(quantized_x.data()) : x.data(),
        .x_stride = quantized ? kernels.quantized_row_bytes(weight.cols)
                              : weight.cols * static_cast<int64_t>(sizeof(float)),
        .x_rows = nullptr,
        .num_tokens = static_cast<int64_t>(tokens),
        .row_begin = 0,
        .row_end = weight.rows,
        .out = out.get(),
        .out_stride = weight.rows,
        .bias = bias ? bias->data() : nullptr,
        .residual = residual ? residual->data() : nullptr,
        .next = nullptr,
    });
  }
  nb::capsule owner(out.get(), [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return OutMatrix(out.release(), {tokens, rows}, owner);
}

}  // namespace

void bind_kernels(nb::module_& m) {
  m.def("linear", &linear, "file"_a, "weight"_a, "x"_a.noconvert(), "isa"_a = "auto",
        "bias"_a.noconvert() = nb::none(), "residual"_a.noconvert() = nb::none());
}

}  // namespace puna
