#include "kv/memory/arena.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
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
  uint8_t* data = arena.blocks()[block_id];
  auto* mapping = new std::shared_ptr<uint8_t>(arena.mapping());
  nb::capsule owner(mapping, [](void* p) noexcept { delete static_cast<std::shared_ptr<uint8_t>*>(p); });
  return Bytes(data, {static_cast<size_t>(arena.block_bytes())}, owner);
}

}  // namespace

void bind_arena(nb::module_& m) {
  nb::class_<Arena>(m, "Arena")
      .def(
          "__init__",
          [](Arena* self, int64_t num_blocks, int64_t block_bytes, int64_t extent_blocks,
             std::optional<int64_t> extent_bytes) {
            new (self) Arena(num_blocks, block_bytes, extent_blocks, extent_bytes.value_or(block_bytes));
          },
          nb::arg("num_blocks"), nb::arg("block_bytes"), nb::arg("extent_blocks") = 1,
          nb::arg("extent_bytes") = nb::none())
      .def_prop_ro("num_blocks", &Arena::num_blocks)
      .def_prop_ro("block_bytes", &Arena::block_bytes)
      .def_prop_ro("extent_blocks", &Arena::extent_blocks)
      .def_prop_ro("extent_bytes", &Arena::extent_bytes)
      .def("block", &block, nb::arg("block_id"))
      .def(
          "commit", [](Arena& arena, const std::vector<int64_t>& extents) { arena.commit(extents); },
          nb::arg("extents"), nb::call_guard<nb::gil_scoped_release>())
      .def(
          "release", [](Arena& arena, const std::vector<int64_t>& extents) { arena.release(extents); },
          nb::arg("extents"), nb::call_guard<nb::gil_scoped_release>())
      .def("fetch", &Arena::fetch, nb::arg("extent"))
      .def("close", &Arena::close, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace puna
