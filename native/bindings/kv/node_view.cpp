#include "bindings/kv/node_view.h"

#include <nanobind/stl/string.h>

#include "bindings/kv/arrays.h"

namespace nb = nanobind;

namespace puna {
namespace {

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

}  // namespace

NodeView node_view(const KvBlocks& kv, int32_t index) {
  const PrefixNode& node = kv.tree().node(index);
  const int32_t next = kv.last_used_child(index);
  const Tokens following = next < 0 ? Tokens() : kv.tree().node(next).tokens();
  return {{index, node.number},
          name_of(kv.tree(), node.parent),
          bytes_of(node.tokens()),
          bytes_of(following),
          blocks_with_tokens(kv, index)};
}

std::vector<PrefixTree::NodeId> ids_of(const std::vector<NodeView>& nodes) {
  std::vector<PrefixTree::NodeId> ids;
  for (const NodeView& node : nodes) ids.push_back(node.id);
  return ids;
}

}  // namespace puna
