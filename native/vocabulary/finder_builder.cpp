#include <algorithm>
#include <numeric>

#include "vocabulary/token_finder.h"

namespace puna {
namespace {

// Texts are read from their end.
uint8_t byte_at(std::string_view text, size_t depth) {
  return static_cast<uint8_t>(text[text.size() - 1 - depth]);
}

class Builder {
 public:
  Builder(const std::vector<std::string_view>& texts, const std::vector<int32_t>& tokens)
      : texts_(texts), tokens_(tokens), order_(texts.size()) {
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      return std::lexicographical_compare(
          texts[a].rbegin(), texts[a].rend(), texts[b].rbegin(), texts[b].rend(),
          [](char x, char y) { return static_cast<uint8_t>(x) < static_cast<uint8_t>(y); });
    });
  }

  std::vector<FinderNode> build() {
    grow();
    link();
    return std::move(nodes_);
  }

 private:
  struct Range {
    size_t begin, end;  // of order_: the texts below a node
  };

  // Breadth first, so that a node's children lie side by side, and failing leads to nodes before.
  void grow() {
    nodes_.emplace_back();
    parents_.push_back(0);
    std::vector<Range> ranges = {{0, order_.size()}};
    for (size_t node = 0; node < nodes_.size(); ++node) {
      auto [begin, end] = ranges[node];
      const size_t depth = nodes_[node].depth;
      nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
      if (begin < end && texts_[order_[begin]].size() == depth) nodes_[node].token = tokens_[order_[begin++]];
      while (begin < end) {
        const uint8_t label = byte_at(texts_[order_[begin]], depth);
        size_t last = begin;
        while (last < end && byte_at(texts_[order_[last]], depth) == label) ++last;
        nodes_.push_back({.depth = static_cast<uint32_t>(depth + 1), .label = label});
        parents_.push_back(static_cast<uint32_t>(node));
        ranges.push_back({begin, last});
        begin = last;
      }
    }
    nodes_.push_back({.first_child = static_cast<uint32_t>(nodes_.size())});
  }

  void link() {
    std::vector<uint32_t> levels(nodes_.size());  // tokens on the way along `shorter`
    for (uint32_t node = 1; node + 1 < nodes_.size(); ++node) {
      FinderNode& self = nodes_[node];
      self.fail = fail_of(node);
      const FinderNode& fail = nodes_[self.fail];
      self.shorter = fail.token >= 0 ? self.fail : fail.shorter;
      // Steps double in length where two of the same length follow each other: any depth is reached in a
      // logarithmic number of them.
      const uint32_t near = self.shorter, far = nodes_[near].much_shorter, farther = nodes_[far].much_shorter;
      levels[node] = levels[near] + 1;
      self.much_shorter = levels[near] - levels[far] == levels[far] - levels[farther] ? farther : near;
    }
  }

  uint32_t fail_of(uint32_t node) const {
    const uint32_t parent = parents_[node];
    for (uint32_t state = parent; state != 0;) {
      state = nodes_[state].fail;
      if (const uint32_t found = find_child(nodes_, state, nodes_[node].label); found != 0) return found;
    }
    return 0;
  }

  const std::vector<std::string_view>& texts_;
  const std::vector<int32_t>& tokens_;
  std::vector<size_t> order_;
  std::vector<FinderNode> nodes_;
  std::vector<uint32_t> parents_;
};

}  // namespace

std::vector<FinderNode> build_finder(const std::vector<std::string_view>& texts,
                                     const std::vector<int32_t>& tokens) {
  return Builder(texts, tokens).build();
}

}  // namespace puna
