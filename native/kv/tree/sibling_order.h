// The children of each node in the order of their tokens: what has the longest common start with some tokens
// stands next to where these would stand. A treap, so that no choice of tokens makes it slow; mostly a node
// has one child, and there is nothing to search.
#pragma once

#include <cstdint>

#include "kv/pool/chunked_array.h"
#include "kv/tree/prefix_node.h"

namespace puna {

class SiblingOrder {
 public:
  explicit SiblingOrder(ChunkedArray<PrefixNode>& nodes) : nodes_(nodes) {}

  // The child with these tokens; -1: there is none.
  int32_t find(int32_t parent, Tokens tokens) const {
    int32_t node = nodes_[parent].children;
    while (node >= 0) {
      const auto order = compare(tokens, nodes_[node].tokens());
      if (order == 0) break;
      node = order < 0 ? nodes_[node].left : nodes_[node].right;
    }
    return node;
  }

  // Whether there is exactly one child, a full block.
  bool is_single_full(int32_t parent) const {
    const int32_t child = nodes_[parent].children;
    return child >= 0 && nodes_[child].is_full() && nodes_[child].left < 0 && nodes_[child].right < 0;
  }

  void insert(int32_t node) { insert(nodes_[nodes_[node].parent].children, node); }

  void erase(int32_t node) {
    int32_t* link = &nodes_[nodes_[node].parent].children;
    while (*link != node)
      link = compare(nodes_[*link].tokens(), nodes_[node].tokens()) < 0 ? &nodes_[*link].right
                                                                        : &nodes_[*link].left;
    *link = merge(nodes_[node].left, nodes_[node].right);
  }

  // Calls visit(node) for children that stand before `tokens`, or not before them, the nearest first, until
  // it returns true.
  template <class Visit>
  void visit_before(int32_t parent, Tokens tokens, Visit&& visit) const {
    before(nodes_[parent].children, tokens, visit);
  }
  template <class Visit>
  void visit_from(int32_t parent, Tokens tokens, Visit&& visit) const {
    from(nodes_[parent].children, tokens, visit);
  }

 private:
  void insert(int32_t& top, int32_t node) {
    if (top < 0 || nodes_[node].priority > nodes_[top].priority) {
      split(top, nodes_[node].tokens(), nodes_[node].left, nodes_[node].right);
      top = node;
    } else if (compare(nodes_[top].tokens(), nodes_[node].tokens()) < 0) {
      insert(nodes_[top].right, node);
    } else {
      insert(nodes_[top].left, node);
    }
  }

  // Into those before `tokens` and the others.
  void split(int32_t top, Tokens tokens, int32_t& left, int32_t& right) {
    if (top < 0) {
      left = right = -1;
    } else if (compare(nodes_[top].tokens(), tokens) < 0) {
      left = top;
      split(nodes_[top].right, tokens, nodes_[top].right, right);
    } else {
      right = top;
      split(nodes_[top].left, tokens, left, nodes_[top].left);
    }
  }

  int32_t merge(int32_t left, int32_t right) {
    if (left < 0) return right;
    if (right < 0) return left;
    if (nodes_[left].priority > nodes_[right].priority) {
      nodes_[left].right = merge(nodes_[left].right, right);
      return left;
    }
    nodes_[right].left = merge(left, nodes_[right].left);
    return right;
  }

  template <class Visit>
  bool before(int32_t top, Tokens tokens, Visit& visit) const {
    if (top < 0) return false;
    const PrefixNode& node = nodes_[top];
    if (compare(node.tokens(), tokens) >= 0) return before(node.left, tokens, visit);
    return before(node.right, tokens, visit) || visit(top) || before(node.left, tokens, visit);
  }

  template <class Visit>
  bool from(int32_t top, Tokens tokens, Visit& visit) const {
    if (top < 0) return false;
    const PrefixNode& node = nodes_[top];
    if (compare(node.tokens(), tokens) < 0) return from(node.right, tokens, visit);
    return from(node.left, tokens, visit) || visit(top) || from(node.right, tokens, visit);
  }

  ChunkedArray<PrefixNode>& nodes_;
};

}  // namespace puna
