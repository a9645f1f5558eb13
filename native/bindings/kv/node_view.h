// What Python sees of a node.
#pragma once

#include <nanobind/nanobind.h>

#include "kv/kv_blocks.h"

namespace puna {

struct NodeView {
  PrefixTree::NodeId id;
  nanobind::object parent;
  nanobind::bytes tokens, following;
  nanobind::tuple blocks;
};

NodeView node_view(const KvBlocks& kv, int32_t index);
std::vector<PrefixTree::NodeId> ids_of(const std::vector<NodeView>& nodes);

}  // namespace puna
