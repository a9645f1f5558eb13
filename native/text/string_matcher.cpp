#include "text/string_matcher.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace puna {

StringMatcher::StringMatcher(std::vector<std::string> strings) {
  size_t total = 0;
  for (const std::string& string : strings) total += string.size();
  if (total >= static_cast<size_t>(std::numeric_limits<State>::max()))
    throw Error("the strings are too long");
  std::sort(strings.begin(), strings.end(), [](std::string_view a, std::string_view b) {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
      return static_cast<uint8_t>(x) < static_cast<uint8_t>(y);
    });
  });
  add_edges(add_nodes(strings));
  find_fallbacks();
}

// Strings come sorted, so that each shares with those before it what it shares with the last of them.
std::vector<StringMatcher::Parent> StringMatcher::add_nodes(const std::vector<std::string>& strings) {
  nodes_.emplace_back();
  std::vector<Parent> parents = {{-1, 0}};
  std::vector<State> path = {0};  // of the string before
  std::string_view before;
  for (const std::string& string : strings) {
    const auto shared = static_cast<size_t>(
        std::mismatch(before.begin(), before.end(), string.begin(), string.end()).first - before.begin());
    path.resize(shared + 1);
    for (size_t i = shared; i < string.size(); ++i) {
      parents.push_back({path.back(), static_cast<uint8_t>(string[i])});
      path.push_back(static_cast<State>(nodes_.size()));
      nodes_.push_back({.depth = static_cast<uint32_t>(i + 1)});
    }
    nodes_[static_cast<size_t>(path.back())].found = static_cast<uint32_t>(string.size());
    before = string;
  }
  return parents;
}

// Nodes came in the order of their strings, so a node's children come in the order of their bytes.
void StringMatcher::add_edges(const std::vector<Parent>& parents) {
  for (size_t i = 1; i < parents.size(); ++i) ++nodes_[static_cast<size_t>(parents[i].node)].num_edges;
  int32_t first = 0;
  for (Node& node : nodes_) {
    node.first_edge = first;
    first += node.num_edges;
    node.num_edges = 0;
  }
  edges_.resize(nodes_.size() - 1);
  for (size_t i = 1; i < parents.size(); ++i) {
    Node& parent = nodes_[static_cast<size_t>(parents[i].node)];
    edges_[static_cast<size_t>(parent.first_edge + parent.num_edges++)] = {parents[i].byte,
                                                                           static_cast<State>(i)};
  }
}

void StringMatcher::find_fallbacks() {
  std::vector<State> queue = {0};  // by depth
  for (size_t i = 0; i < queue.size(); ++i) {
    const Node node = nodes_[static_cast<size_t>(queue[i])];
    for (int32_t e = node.first_edge; e < node.first_edge + node.num_edges; ++e) {
      const Edge edge = edges_[static_cast<size_t>(e)];
      Node& reached = nodes_[static_cast<size_t>(edge.child)];
      if (queue[i] != 0) reached.fallback = next(node.fallback, static_cast<char>(edge.byte));
      // A string that ends here is longer than any that it ends with.
      if (reached.found == 0) reached.found = nodes_[static_cast<size_t>(reached.fallback)].found;
      queue.push_back(edge.child);
    }
  }
}

StringMatcher::State StringMatcher::child(State state, uint8_t byte) const {
  const Node& node = nodes_[static_cast<size_t>(state)];
  const Edge* begin = edges_.data() + node.first_edge;
  const Edge* end = begin + node.num_edges;
  const Edge* edge = std::lower_bound(begin, end, byte, [](const Edge& e, uint8_t b) { return e.byte < b; });
  return edge != end && edge->byte == byte ? edge->child : -1;
}

StringMatcher::State StringMatcher::next(State state, char byte) const {
  while (true) {
    if (const State found = child(state, static_cast<uint8_t>(byte)); found >= 0) return found;
    if (state == 0) return 0;
    state = nodes_[static_cast<size_t>(state)].fallback;
  }
}

}  // namespace puna
