#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "base/assertion.h"
#include "bindings/kv/arrays.h"
#include "bindings/kv/parts.h"
#include "kv/kv_blocks.h"

namespace nb = nanobind;

namespace puna {
namespace {

// Moves tokens of one group: the signature of BlockMemory.move().
using Mover = std::function<void(BlockArray, BlockArray, int64_t, int64_t, int64_t)>;

KvBlocks::Move move_with(std::vector<Mover> movers) {
  return [movers = std::move(movers)](size_t group, const KvMove& move) {
    movers.at(group)(array_of(move.source), array_of(move.destination), move.source_begin,
                     move.destination_begin, move.num_tokens);
  };
}

}  // namespace

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

}  // namespace puna
