#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <utility>

#include "base/assertion.h"
#include "bindings/bindings.h"
#include "kv/prefix_listing.h"
#include "kv/sequence_table.h"
#include "kv/unsaved_nodes.h"

namespace nb = nanobind;

namespace puna {
namespace {

using TokenArray = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using BlockArray = nb::ndarray<nb::numpy, int32_t, nb::ndim<1>>;
using TableArray = nb::ndarray<nb::numpy, int32_t, nb::ndim<2>>;
// Moves tokens of one group: the signature of BlockMemory.move().
using Mover = std::function<void(BlockArray, BlockArray, int64_t, int64_t, int64_t)>;

// What Python sees of a node.
struct NodeView {
  PrefixTree::NodeId id;
  nb::object parent;
  nb::bytes tokens, following;
  nb::tuple blocks;
};

Tokens view(const TokenArray& tokens) { return {tokens.data(), tokens.shape(0)}; }

nb::bytes bytes_of(Tokens tokens) {
  return nb::bytes(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes());
}

// Rows of `width` entries; those that are not held, and those past a table's end, are 0.
TableArray rows_of(size_t num_rows, size_t width) {
  auto* data = new int32_t[std::max<size_t>(num_rows * width, 1)]();
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<int32_t*>(p); });
  return TableArray(data, {num_rows, width}, owner);
}

void fill(const std::vector<int32_t>& blocks, int32_t* row) {
  std::ranges::transform(blocks, row, [](int32_t block) { return std::max(block, 0); });
}

BlockArray array_of(const std::vector<int32_t>& blocks) {
  auto* data = new int32_t[std::max<size_t>(blocks.size(), 1)];
  fill(blocks, data);
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<int32_t*>(p); });
  return BlockArray(data, {blocks.size()}, owner);
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

KvBlocks::Move move_with(std::vector<Mover> movers) {
  return [movers = std::move(movers)](size_t group, const KvMove& move) {
    movers.at(group)(array_of(move.source), array_of(move.destination), move.source_begin,
                     move.destination_begin, move.num_tokens);
  };
}

nb::object name_of(const PrefixTree& tree, int32_t node) {
  if (tree.node(node).is_root()) return nb::cast(tree.name_space(node));
  return nb::cast(tree.node(node).number);
}

// A snapshot within a block comes with the blocks that hold its tokens.
nb::tuple blocks_with_tokens(const KvBlocks& kv, int32_t node) {
  nb::list blocks;
  const int32_t tokens = kv.token_node(node);
  for (size_t group = 0; group < kv.num_groups(); ++group) {
    const bool is_state = group == kv.num_token_groups();
    const int32_t of = is_state ? node : tokens;
    blocks.append(of < 0 ? -1 : kv.tree().block(of, group));
  }
  return nb::tuple(blocks);
}

nb::tuple blocks_of(const KvBlocks& kv, int32_t node) {
  nb::list blocks;
  for (size_t group = 0; group < kv.num_groups(); ++group) blocks.append(kv.tree().block(node, group));
  return nb::tuple(blocks);
}

NodeView node_view(const KvBlocks& kv, int32_t index) {
  const PrefixNode& node = kv.tree().node(index);
  const int32_t next = kv.last_used_child(index);
  const Tokens following = next < 0 ? Tokens() : kv.tree().node(next).tokens();
  return {{index, node.number}, name_of(kv.tree(), node.parent), bytes_of(node.tokens()), bytes_of(following),
          blocks_with_tokens(kv, index)};
}

// A KvBlocks' tree, as Python sees it.
struct Tree {
  std::shared_ptr<KvBlocks> kv;

  PrefixTree& of(const SequenceTable& table) const {
    require(table.kv() == kv, "a table of another model");
    return kv->tree();
  }
};

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

std::optional<std::vector<NodeView>> next_listed(PrefixListing& listing, int64_t limit) {
  if (listing.is_done()) return std::nullopt;
  std::vector<NodeView> nodes;
  for (const int32_t node : listing.next(limit)) nodes.push_back(node_view(*listing.kv(), node));
  return nodes;
}

std::vector<NodeView> take_unsaved(UnsavedNodes& unsaved, int64_t limit) {
  std::vector<NodeView> nodes;
  for (const int32_t node : unsaved.take(limit)) nodes.push_back(node_view(*unsaved.kv(), node));
  return nodes;
}

std::vector<PrefixTree::NodeId> ids_of(const std::vector<NodeView>& nodes) {
  std::vector<PrefixTree::NodeId> ids;
  for (const NodeView& node : nodes) ids.push_back(node.id);
  return ids;
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

void bind_pool(nb::module_& m) {
  nb::class_<ReleaseClock>(m, "ReleaseClock").def(nb::init<>());
  nb::class_<BlockPool>(m, "BlockPool")
      .def_prop_ro("num_used", &BlockPool::num_used)
      .def_prop_ro("num_cached", &BlockPool::num_cached)
      .def_prop_ro("num_spare", &BlockPool::num_spare)
      .def_prop_ro("num_uncommitted", [](const BlockPool& pool) { return pool.extents().num_uncommitted(); })
      .def_prop_ro("num_empty", [](const BlockPool& pool) { return pool.extents().num_empty(); })
      .def_prop_ro("num_unused", [](const BlockPool& pool) { return pool.extents().num_unused(); })
      .def_prop_ro("num_unused_blocks", [](const BlockPool& pool) { return pool.extents().unused_blocks(); })
      .def(
          "extents_for", [](const BlockPool& pool, int64_t blocks) { return pool.extents().num_for(blocks); },
          nb::arg("num_blocks"))
      .def("oldest_cached",
           [](const BlockPool& pool) -> std::optional<int64_t> {
             if (pool.oldest_cached() < 0) return std::nullopt;
             return pool.tick(pool.oldest_cached());
           })
      .def("commit", &BlockPool::commit, nb::arg("num_extents"))
      .def("uncommit", &BlockPool::uncommit, nb::arg("extents"))
      .def("uncommit_empty", &BlockPool::uncommit_empty, nb::arg("at_most"))
      .def("num_references", &BlockPool::num_references, nb::arg("block"))
      .def("references", [](const BlockPool& pool) {
        nb::dict references;
        for (int32_t block = 0; block < pool.num_known(); ++block)
          if (const int32_t count = pool.num_references(block)) references[nb::cast(block)] = count;
        return references;
      });
}

void bind_blocks(nb::module_& m) {
  nb::class_<KvBlocks>(m, "KvBlocks")
      .def(
          "__init__",
          [](KvBlocks* self, const std::vector<std::vector<int64_t>>& groups,
             std::shared_ptr<ReleaseClock> clock, KvBlocks::Supply supply, KvBlocks::RunsLow runs_low,
             std::vector<Mover> movers) {
            std::vector<GroupSpec> specs;
            for (const auto& group : groups)
              specs.push_back(
                  {{group.at(0), group.at(1), group.at(2), group.at(3)}, group.at(4), group.at(5) != 0});
            new (self) KvBlocks(specs, std::move(clock), std::move(supply), std::move(runs_low),
                                move_with(std::move(movers)));
          },
          nb::arg("groups"), nb::arg("clock"), nb::arg("supply"), nb::arg("runs_low"), nb::arg("movers"))
      .def(
          "pool", [](KvBlocks& kv, size_t group) -> BlockPool& { return kv.groups().at(group).pool; },
          nb::arg("group"), nb::rv_policy::reference_internal)
      .def(
          "acquire",
          [](KvBlocks& kv, const BlockCounts& counts) -> std::optional<BlockLists> {
            BlockLists blocks;
            if (counts.size() != kv.num_groups() || !kv.acquire(counts, blocks)) return std::nullopt;
            return blocks;
          },
          nb::arg("counts"))
      .def(
          "retain",
          [](KvBlocks& kv, size_t group, const std::vector<int32_t>& blocks) {
            for (const int32_t block : blocks) kv.groups().at(group).pool.retain(block);
          },
          nb::arg("group"), nb::arg("blocks"))
      .def(
          "release",
          [](KvBlocks& kv, size_t group, const std::vector<int32_t>& blocks) {
            for (const int32_t block : blocks) kv.groups().at(group).pool.release(block);
          },
          nb::arg("group"), nb::arg("blocks"))
      .def(
          "evict",
          [](KvBlocks& kv, size_t group) {
            require(kv.groups().at(group).pool.num_cached() > 0, "nothing is cached in group",
                    static_cast<int64_t>(group));
            kv.evict(group);
          },
          nb::arg("group"))
      .def("evict_extents", &KvBlocks::evict_extents, nb::arg("before"), nb::arg("spare_bytes"),
           nb::arg("at_most"))
      .def("oldest_unused",
           [](const KvBlocks& kv) -> std::optional<int64_t> {
             const int64_t tick = kv.oldest_unused();
             return tick < 0 ? std::nullopt : std::optional(tick);
           })
      .def("drop_cached", &KvBlocks::drop_cached, nb::arg("at_most"))
      .def("check", &KvBlocks::check);
}

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

void bind_tree(nb::module_& m) {
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
  nb::class_<NodeView>(m, "PrefixNode")
      .def_prop_ro("number", [](const NodeView& node) { return node.id.number; })
      .def_ro("parent", &NodeView::parent)
      .def_ro("tokens", &NodeView::tokens)
      .def_ro("following", &NodeView::following)
      .def_ro("blocks", &NodeView::blocks);
  nb::class_<PrefixListing>(m, "PrefixListing").def("next", &next_listed, nb::arg("limit"));
  nb::class_<UnsavedNodes>(m, "UnsavedNodes")
      .def(
          "__init__",
          [](UnsavedNodes* self, const Tree& tree, int64_t min_blocks) {
            new (self) UnsavedNodes(tree.kv, min_blocks);
          },
          nb::arg("tree"), nb::arg("min_blocks"))
      .def_prop_ro("num_fresh", &UnsavedNodes::num_fresh)
      .def("take", &take_unsaved, nb::arg("limit"))
      .def("forget", &UnsavedNodes::forget)
      .def(
          "put_back",
          [](UnsavedNodes& unsaved, const std::vector<NodeView>& nodes) { unsaved.put_back(ids_of(nodes)); },
          nb::arg("nodes"));
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
          "touch", [](Tree& tree, const std::vector<NodeView>& nodes) { tree.kv->touch(ids_of(nodes)); },
          nb::arg("nodes"))
      .def("list_nodes", [](const Tree& tree) { return PrefixListing(tree.kv); });
}

}  // namespace

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
  bind_tree(m);
}

}  // namespace puna
