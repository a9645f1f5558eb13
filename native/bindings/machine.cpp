#include <nanobind/stl/string.h>

#include "base/error.h"
#include "bindings/bindings.h"
#include "machine/roofs.h"
#include "matrix_units/tile_linear.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace puna {
namespace {

double dot_peak(ThreadPool& pool, double seconds, const std::string& isa) {
  const Kernels& kernels = select_kernels(isa.c_str());
  const nb::gil_scoped_release released;
  return measure_dot_peak(pool, kernels, seconds);
}

double read_bandwidth(ThreadPool& pool, int64_t num_bytes, double seconds) {
  const Kernels& kernels = select_kernels("auto");
  const nb::gil_scoped_release released;
  return measure_read_bandwidth(pool, kernels, num_bytes, seconds);
}

}  // namespace

void bind_machine(nb::module_& m) {
  m.def("measure_dot_peak", &dot_peak, "pool"_a, "seconds"_a, "isa"_a = "auto");
  m.def("measure_read_bandwidth", &read_bandwidth, "pool"_a, "num_bytes"_a, "seconds"_a);
  m.def("ask_for_matrix_unit", [] { return tile_kernels() != nullptr; });
}

}  // namespace puna
