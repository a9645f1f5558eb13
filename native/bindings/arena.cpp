#include "kv/arena.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "bindings/bindings.h"

namespace nb = nanobind;

namespace puna {
namespace {

using Bytes = nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>, nb::c_contig>;

Bytes block(const Arena& arena, int64_t block_id) {
  if (block_id < 0 || block_id >= arena.num_blocks())
    throw Error("arena: no block " + std::to_string(block_id) + " among " +
                std::to_string(arena.num_blocks()));
  uint8_t* data = arena.base() + block_id * arena.block_bytes();
  auto* mapping = new std::shared_ptr<uint8_t>(arena.mapping());
  nb::capsule owner(mapping, [](void* p) noexcept { delete static_cast<std::shared_ptr<uint8_t>*>(p); });
  return Bytes(data, {static_cast<size_t>(arena.block_bytes())}, owner);
}

}  // namespace

void bind_arena(nb::module_& m) {
  nb::class_<Arena>(m, "Arena")
      .def(nb::init<int64_t, int64_t>(), nb::arg("num_blocks"), nb::arg("block_bytes"))
      .def_prop_ro("num_blocks", &Arena::num_blocks)
      .def_prop_ro("block_bytes", &Arena::block_bytes)
      .def("block", &block, nb::arg("block_id"))
      .def(
          "release", [](Arena& arena, const std::vector<int64_t>& block_ids) { arena.release(block_ids); },
          nb::arg("block_ids"), nb::call_guard<nb::gil_scoped_release>())
      .def("close", &Arena::close);
}

}  // namespace puna
