#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "bindings/bindings.h"
#include "conversion/quantize_rows.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace puna {
namespace {

// Rows of bytes: numpy has no bfloat16.
using ByteRows = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using OutRows = nb::ndarray<nb::numpy, uint8_t, nb::ndim<2>>;

TensorType type_named(std::string_view name) {
  for (uint32_t number = 0; number < 256; ++number) {
    const TypeTraits* traits = type_traits(static_cast<TensorType>(number));
    if (traits != nullptr && name == traits->name) return static_cast<TensorType>(number);
  }
  throw Error("unknown type " + std::string(name));
}

RowsToQuantize rows_of(const ByteRows& rows, std::string_view source, std::string_view target) {
  const TensorType source_type = type_named(source);
  const TypeTraits& traits = *type_traits(source_type);
  return {.source = source_type,
          .data = {rows.data(), rows.size()},
          .cols = static_cast<int64_t>(rows.shape(1)) / traits.block_bytes * traits.block_elements,
          .type = type_named(target)};
}

OutRows quantize(ThreadPool& pool, const ByteRows& rows, std::string_view source, std::string_view target,
                 const std::string& isa) {
  const RowsToQuantize todo = rows_of(rows, source, target);
  const Kernels& kernels = select_kernels(isa.c_str());
  const size_t size = quantized_bytes(todo);
  std::unique_ptr<uint8_t[]> out(new uint8_t[size]);
  {
    const nb::gil_scoped_release release;
    quantize_rows(pool, kernels, todo, out.get());
  }
  nb::capsule owner(out.get(), [](void* p) noexcept { delete[] static_cast<uint8_t*>(p); });
  return OutRows(out.release(), {rows.shape(0), rows.shape(0) == 0 ? 0 : size / rows.shape(0)}, owner);
}

void write_quantized(ThreadPool& pool, const ByteRows& rows, std::string_view source, std::string_view target,
                     int descriptor, int64_t offset) {
  const RowsToQuantize todo = rows_of(rows, source, target);
  int error = 0;
  {
    const nb::gil_scoped_release release;
    try {
      write_quantized_rows(pool, select_kernels("auto"), todo, descriptor, offset);
    } catch (const std::system_error& e) {
      error = e.code().value();
    }
  }
  if (error == 0) return;
  errno = error;
  PyErr_SetFromErrno(PyExc_OSError);
  throw nb::python_error();
}

}  // namespace

void bind_conversion(nb::module_& m) {
  m.def("quantize", &quantize, "pool"_a, "rows"_a.noconvert(), "source"_a, "target"_a, "isa"_a = "auto");
  m.def("write_quantized", &write_quantized, "pool"_a, "rows"_a.noconvert(), "source"_a, "target"_a,
        "descriptor"_a, "offset"_a);
}

}  // namespace puna
