#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

#include "base/error.h"
#include "bindings/bindings.h"
#include "json/floats.h"
#include "json/structure.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace puna {
namespace {

// The bytes of an object, held as long as this lives.
class View {
 public:
  explicit View(const nb::object& object) {
    if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  ~View() { PyBuffer_Release(&buffer_); }
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  const char* data() const { return static_cast<const char*>(buffer_.buf); }
  size_t size() const { return static_cast<size_t>(buffer_.len); }

 private:
  Py_buffer buffer_;
};

nb::tuple structure(const nb::object& text) {
  const View view(text);
  JsonStructure found;
  {
    const nb::gil_scoped_release release;
    found = json_structure({view.data(), view.size()});
  }
  return nb::make_tuple(found.num_values, found.depth, found.num_digits);
}

nb::bytes floats(const nb::object& values) {
  const View view(values);
  const bool is_aligned = reinterpret_cast<uintptr_t>(view.data()) % alignof(float) == 0;
  if (view.size() % sizeof(float) != 0 || (!is_aligned && view.size() != 0))
    throw Error("not the bytes of floats");
  const std::string text =
      json_array({reinterpret_cast<const float*>(view.data()), view.size() / sizeof(float)});
  return nb::bytes(text.data(), text.size());
}

}  // namespace

void bind_json(nb::module_& m) {
  m.def("json_structure", &structure, "text"_a);
  m.def("json_floats", &floats, "values"_a);
}

}  // namespace puna
