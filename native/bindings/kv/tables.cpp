#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "base/assertion.h"
#include "bindings/kv/arrays.h"
#include "bindings/kv/parts.h"
#include "kv/table/sequence_table.h"

namespace nb = nanobind;

namespace puna {
namespace {

using TableArray = nb::ndarray<nb::numpy, int32_t, nb::ndim<2>>;

// Rows of `width` entries; those that are not held, and those past a table's end, are 0.
TableArray rows_of(size_t num_rows, size_t width) {
  auto* data = new int32_t[std::max<size_t>(num_rows * width, 1)]();
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<int32_t*>(p); });
  return TableArray(data, {num_rows, width}, owner);
}

nb::tuple gather_tables(const std::vector<const SequenceTable*>& tables) {
  nb::list arrays;
  const size_t num_groups = tables.empty() ? 0 : tables[0]->kv()->num_token_groups();
  size_t width = 0;
  for (const SequenceTable* table : tables) width = std::max(width, static_cast<size_t>(table->num_blocks()));
  for (size_t group = 0; group < num_groups; ++group) {
    TableArray array = rows_of(tables.size(), width);
    for (size_t row = 0; row < tables.size(); ++row)
      fill(tables[row]->blocks(group), array.data() + row * width);
    arrays.append(array);
  }
  if (tables.empty() || !tables[0]->kv()->has_states()) return nb::tuple(arrays);
  TableArray states = rows_of(tables.size(), 2);
  for (size_t row = 0; row < tables.size(); ++row) {
    const SequenceState& state = tables[row]->state();
    require(state.position() >= 0 && state.written() >= 0, "a step without a state");
    states.data()[2 * row] = state.block();
    states.data()[2 * row + 1] = state.written();
  }
  arrays.append(states);
  return nb::tuple(arrays);
}

std::vector<int32_t> held_blocks(const SequenceTable& table, size_t group) {
  if (table.kv()->has_states() && group == table.kv()->num_token_groups()) {
    std::vector<int32_t> held;
    const SequenceState& state = table.state();
    if (state.block() >= 0) held.push_back(state.block());
    if (state.written() >= 0 && state.written() != state.block()) held.push_back(state.written());
    return held;
  }
  const std::vector<int32_t>& blocks = table.blocks(group);
  return {blocks.begin() + table.first(group), blocks.end()};
}

}  // namespace

void bind_tables(nb::module_& m) {
  nb::class_<SequenceTable>(m, "SequenceTable", nb::dynamic_attr())
      .def(nb::init<std::shared_ptr<KvBlocks>, bool>(), nb::arg("kv"), nb::arg("keeps_all") = false)
      .def_prop_rw("keeps_all", &SequenceTable::keeps_all, &SequenceTable::set_keeps_all)
      .def_prop_ro("num_blocks", &SequenceTable::num_blocks)
      .def_prop_ro("held_bytes", &SequenceTable::held_bytes)
      .def_prop_ro("block_bytes", [](const SequenceTable& table) { return table.kv()->block_bytes(); })
      .def_prop_ro("state",
                   [](const SequenceTable& table) -> std::optional<int32_t> {
                     const int32_t block = table.state().block();
                     return block < 0 ? std::nullopt : std::optional(block);
                   })
      .def_prop_ro("state_position", [](const SequenceTable& table) { return table.state().position(); })
      .def_prop_ro("needs_state_block",
                   [](const SequenceTable& table) { return table.state().needs_block(); })
      .def("first_held", &SequenceTable::first, nb::arg("group") = 0)
      .def("blocks", &held_blocks, nb::arg("group") = 0)
      .def("arrays",
           [](const SequenceTable& table) {
             nb::list arrays;
             for (size_t group = 0; group < table.kv()->num_token_groups(); ++group)
               arrays.append(array_of(table.blocks(group)));
             return nb::tuple(arrays);
           })
      .def("missing_bytes", &SequenceTable::missing_bytes, nb::arg("num_tokens"))
      .def("least_bytes", &SequenceTable::least_bytes, nb::arg("num_tokens"))
      .def("grow", &SequenceTable::grow, nb::arg("num_tokens"), nb::arg("position") = 0)
      .def("slide", &SequenceTable::slide, nb::arg("position"))
      .def("truncate", &SequenceTable::truncate, nb::arg("num_tokens"))
      .def("release", &SequenceTable::release)
      .def("stepped", &SequenceTable::stepped, nb::arg("num_tokens"))
      .def("failed", &SequenceTable::failed)
      .def("can_resume", &SequenceTable::can_resume, nb::arg("num_tokens"))
      .def("fork", &SequenceTable::fork, nb::arg("num_tokens"))
      .def("remove", &SequenceTable::remove, nb::arg("begin"), nb::arg("end"), nb::arg("num_tokens"));
  m.def("gather_tables", &gather_tables, nb::arg("tables"));
}

}  // namespace puna
