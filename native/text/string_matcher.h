// Finds whichever of some strings is complete first, in time linear in text and strings (Aho and Corasick,
// 1975).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace puna {

class StringMatcher {
 public:
  // State: the longest beginning of a string with which the text ends; 0: none.
  using State = int32_t;

  // Empty strings are never found. Throws Error if they are too long.
  explicit StringMatcher(std::vector<std::string> strings);

  State next(State state, char byte) const;
  // How long what the text ends with is.
  size_t num_matched(State state) const { return nodes_[static_cast<size_t>(state)].depth; }
  // How long the longest string is that the text ends with; 0: with none.
  size_t num_found(State state) const { return nodes_[static_cast<size_t>(state)].found; }

 private:
  // A beginning of some strings. Children lie in edges_, by their bytes.
  struct Node {
    int32_t first_edge = 0;
    int32_t num_edges = 0;
    State fallback = 0;  // the longest other node that this one ends with
    uint32_t depth = 0;
    uint32_t found = 0;
  };
  struct Edge {
    uint8_t byte;
    State child;
  };
  struct Parent {
    State node;
    uint8_t byte;
  };

  std::vector<Parent> add_nodes(const std::vector<std::string>& strings);
  void add_edges(const std::vector<Parent>& parents);
  void find_fallbacks();
  State child(State state, uint8_t byte) const;  // -1: none

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
};

}  // namespace puna
