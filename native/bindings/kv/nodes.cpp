#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "bindings/kv/node_view.h"
#include "bindings/kv/parts.h"
#include "bindings/kv/tree_handle.h"
#include "kv/tree/prefix_listing.h"
#include "kv/tree/unsaved_nodes.h"

namespace nb = nanobind;

namespace puna {
namespace {

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

}  // namespace

void bind_nodes(nb::module_& m) {
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
}

}  // namespace puna
