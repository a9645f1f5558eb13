#include <nanobind/nanobind.h>

#include "bindings/bindings.h"
#include "json/structure.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace puna {
namespace {

nb::tuple structure(const nb::object& text) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(text.ptr(), &buffer, PyBUF_SIMPLE) != 0) throw nb::python_error();
  JsonStructure found;
  {
    const nb::gil_scoped_release release;
    found = json_structure({static_cast<const char*>(buffer.buf), static_cast<size_t>(buffer.len)});
  }
  PyBuffer_Release(&buffer);
  return nb::make_tuple(found.num_values, found.depth, found.num_digits);
}

}  // namespace

void bind_json(nb::module_& m) { m.def("json_structure", &structure, "text"_a); }

}  // namespace puna
