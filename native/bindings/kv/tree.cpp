#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <utility>

#include "bindings/kv/arrays.h"
#include "bindings/kv/node_view.h"
#include "bindings/kv/parts.h"
#include "bindings/kv/tree_handle.h"
#include "kv/tree/prefix_listing.h"

namespace nb = nanobind;

namespace puna {
namespace {

nb::tuple blocks_of(const KvBlocks& kv, int32_t node) {
  nb::list blocks;
  for (size_t group = 0; group < kv.num_groups(); ++group) blocks.append(kv.tree().block(node, group));
  return nb::tuple(blocks);
}

std::optional<nb::tuple> find_partial(const Tree& tree, const Cursor& cursor, const TokenArray& tokens,
                                      int64_t limit) {
  const auto found = tree.kv->tree().find_partial(cursor, view(tokens), limit);
  if (!found) return std::nullopt;
  return nb::make_tuple(blocks_of(*tree.kv, found->node), found->num_tokens);
}

bool age(const Tree& tree, const Cursor& cursor, const TokenArray& tokens, int64_t position) {
  const int32_t block = tree.kv->tree().find_snapshot(cursor, view(tokens), position);
  if (block < 0 || !tree.kv->states().pool.is_cached(block)) return false;
  tree.kv->states().pool.make_oldest(block);
  return true;
}

bool renew(const Tree& tree, const Cursor& cursor, const TokenArray& tokens, int64_t position) {
  const int32_t block = tree.kv->tree().find_snapshot(cursor, view(tokens), position);
  if (block < 0) return false;
  BlockPool& pool = tree.kv->states().pool;
  pool.retain(block);
  pool.release(block);
  return true;
}

std::optional<nb::tuple> path_to(const Tree& tree, const NodeView& view) {
  const PrefixTree& of = tree.kv->tree();
  if (!of.is_alive(view.id)) return std::nullopt;
  std::vector<int32_t> tokens;
  int32_t node = of.node(view.id.index).parent;
  for (; !of.node(node).is_root(); node = of.node(node).parent) {
    const Tokens own = of.node(node).tokens();
    tokens.insert(tokens.end(), own.rbegin(), own.rend());
  }
  std::ranges::reverse(tokens);
  return nb::make_tuple(of.name_space(node), bytes_of(tokens));
}

nb::object node_of(const Cursor& cursor) {
  return cursor.num_blocks == 0 ? nb::cast(cursor.name_space) : nb::cast(cursor.number);
}

void bind_cursor(nb::module_& m) {
  nb::class_<Cursor>(m, "Cursor")
      .def(
          "__init__",
          [](Cursor* self, std::string name_space, bool to_disk) {
            new (self) Cursor{std::move(name_space), to_disk};
          },
          nb::arg("namespace"), nb::arg("to_disk") = true)
      .def_ro("num_blocks", &Cursor::num_blocks)
      .def_ro("num_matched", &Cursor::num_matched)
      .def_prop_ro("node", &node_of);
}

}  // namespace

void bind_tree(nb::module_& m) {
  bind_cursor(m);
  nb::class_<Tree>(m, "PrefixTree")
      .def(nb::init<std::shared_ptr<KvBlocks>>(), nb::arg("kv"))
      .def(
          "start",
          [](const Tree&, std::string name_space, bool to_disk) {
            return Cursor{std::move(name_space), to_disk};
          },
          nb::arg("namespace"), nb::kw_only(), nb::arg("to_disk") = true)
      .def(
          "follow",
          [](Tree& tree, Cursor& cursor, SequenceTable& table, const TokenArray& tokens, int64_t limit) {
            return tree.of(table).follow(cursor, table, view(tokens), limit);
          },
          nb::arg("cursor"), nb::arg("table"), nb::arg("tokens"), nb::arg("limit"))
      .def(
          "hold",
          [](Tree& tree, const Cursor& cursor, SequenceTable& table, const TokenArray& tokens) {
            return tree.of(table).hold(cursor, table, view(tokens));
          },
          nb::arg("cursor"), nb::arg("table"), nb::arg("tokens"))
      .def("find_partial", &find_partial, nb::arg("cursor"), nb::arg("tokens"), nb::arg("limit"))
      .def(
          "next_key",
          [](const Tree&, const Cursor& cursor, const TokenArray& tokens) {
            return nb::make_tuple(node_of(cursor), bytes_of(block_of(view(tokens), cursor.num_blocks)));
          },
          nb::arg("cursor"), nb::arg("tokens"))
      .def(
          "record",
          [](Tree& tree, Cursor& cursor, SequenceTable& table, const TokenArray& tokens) {
            tree.of(table).record(cursor, table, view(tokens));
          },
          nb::arg("cursor"), nb::arg("table"), nb::arg("tokens"))
      .def(
          "record_tail",
          [](Tree& tree, Cursor& cursor, SequenceTable& table, const TokenArray& tokens) {
            tree.of(table).record_tail(cursor, table, view(tokens));
          },
          nb::arg("cursor"), nb::arg("table"), nb::arg("tokens"))
      .def(
          "snapshot",
          [](Tree& tree, Cursor& cursor, SequenceTable& table, const TokenArray& tokens) {
            tree.of(table).snapshot(cursor, table, view(tokens));
          },
          nb::arg("cursor"), nb::arg("table"), nb::arg("tokens"))
      .def(
          "snapshots",
          [](const Tree& tree, const Cursor& cursor, const TokenArray& tokens) {
            return tree.kv->tree().snapshots(cursor, view(tokens));
          },
          nb::arg("cursor"), nb::arg("tokens"))
      .def("age", &age, nb::arg("cursor"), nb::arg("tokens"), nb::arg("position"))
      .def("renew", &renew, nb::arg("cursor"), nb::arg("tokens"), nb::arg("position"))
      .def(
          "forget", [](Tree& tree, int32_t block, size_t group) { tree.kv->tree().forget(group, block); },
          nb::arg("block"), nb::arg("group") = 0)
      .def(
          "num_recorded",
          [](const Tree& tree, int32_t block, size_t group) {
            return tree.kv->tree().num_recorded(group, block);
          },
          nb::arg("block"), nb::arg("group") = 0)
      .def_prop_ro("num_nodes", [](const Tree& tree) { return tree.kv->tree().num_nodes(); })
      .def("path_to", &path_to, nb::arg("node"))
      .def(
          "restore_order",
          [](Tree& tree, const std::vector<NodeView>& nodes) { tree.kv->restore_order(ids_of(nodes)); },
          nb::arg("nodes"))
      .def("list_nodes", [](const Tree& tree) { return PrefixListing(tree.kv); });
}

}  // namespace puna
