#include "base/assertion.h"
#include "bindings/bindings.h"
#include "bindings/kv/parts.h"

namespace nb = nanobind;

namespace puna {

void bind_kv(nb::module_& m) {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const AssertionFailure& failure) {
      PyErr_SetString(PyExc_AssertionError, failure.what());
    }
  });
  bind_pool(m);
  bind_blocks(m);
  bind_tables(m);
  bind_nodes(m);
  bind_tree(m);
}

}  // namespace puna
