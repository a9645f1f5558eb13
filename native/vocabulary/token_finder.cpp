#include "vocabulary/token_finder.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "base/error.h"

namespace puna {
namespace {

// Bytes of the text that belong to a token already.
class Taken {
 public:
  explicit Taken(size_t size) : words_(size / kBits + 1) {}

  bool at(size_t position) const { return words_[position / kBits] >> (position % kBits) & 1; }

  // The first one in [begin, end), or end.
  size_t next(size_t begin, size_t end) const {
    while (begin < end) {
      const uint64_t rest = words_[begin / kBits] >> (begin % kBits);
      if (rest != 0) return std::min(end, begin + static_cast<size_t>(std::countr_zero(rest)));
      begin = (begin / kBits + 1) * kBits;
    }
    return end;
  }

  void take(size_t begin, size_t end) {
    for (; begin < end && begin % kBits != 0; ++begin)
      words_[begin / kBits] |= uint64_t{1} << (begin % kBits);
    for (; begin + kBits <= end; begin += kBits) words_[begin / kBits] = ~uint64_t{0};
    for (; begin < end; ++begin) words_[begin / kBits] |= uint64_t{1} << (begin % kBits);
  }

 private:
  static constexpr size_t kBits = 64;
  std::vector<uint64_t> words_;
};

// The longest token at a position that may still fit there.
struct Candidate {
  uint32_t depth;
  int32_t token;
  uint32_t begin;
  uint32_t node;

  bool operator<(const Candidate& other) const {  // is taken later
    if (depth != other.depth) return depth < other.depth;
    if (token != other.token) return token > other.token;
    return begin > other.begin;
  }
};

Candidate candidate(std::span<const FinderNode> nodes, uint32_t begin, uint32_t node) {
  return {nodes[node].depth, nodes[node].token, begin, node};
}

// Each position's longest token.
std::vector<Candidate> longest_tokens(std::span<const FinderNode> nodes, std::string_view text) {
  std::array<uint32_t, 256> first;
  for (uint32_t byte = 0; byte < first.size(); ++byte) first[byte] = find_child(nodes, 0, byte);
  std::vector<Candidate> longest;
  uint32_t state = 0;
  for (auto position = static_cast<uint32_t>(text.size()); position-- > 0;) {
    const auto byte = static_cast<uint8_t>(text[position]);
    uint32_t next = 0;
    while (state != 0 && (next = find_child(nodes, state, byte)) == 0) state = nodes[state].fail;
    state = state == 0 ? first[byte] : next;
    const uint32_t node = nodes[state].token >= 0 ? state : nodes[state].shorter;
    if (node != 0) longest.push_back(candidate(nodes, position, node));
  }
  return longest;
}

uint32_t longest_within(std::span<const FinderNode> nodes, uint32_t node, size_t room) {
  while (nodes[node].depth > room) {
    const uint32_t far = nodes[node].much_shorter;
    node = nodes[far].depth > room ? far : nodes[node].shorter;
  }
  return node;
}

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

uint32_t find_child(std::span<const FinderNode> nodes, uint32_t node, uint32_t label) {
  const auto first = nodes.begin() + nodes[node].first_child,
             last = nodes.begin() + nodes[node + 1].first_child;
  const auto found = std::lower_bound(first, last, label,
                                      [](const FinderNode& n, uint32_t value) { return n.label < value; });
  return found != last && found->label == label ? static_cast<uint32_t>(found - nodes.begin()) : 0;
}

void check_finder(std::span<const FinderNode> nodes, size_t num_tokens) {
  const auto check = [](bool ok) {
    if (!ok) throw Error("a vocabulary's finder of special tokens is damaged");
  };
  check(nodes.size() >= 2 && nodes[0].depth == 0 && nodes[0].token < 0 && nodes[0].fail == 0 &&
        nodes[0].shorter == 0 && nodes[0].much_shorter == 0);
  const size_t end = nodes.size() - 1;
  for (size_t i = 0; i < end; ++i) {
    const FinderNode& node = nodes[i];
    check(node.first_child <= nodes[i + 1].first_child && nodes[i + 1].first_child <= end);
    check(node.first_child > i || node.first_child == nodes[i + 1].first_child);
    for (size_t child = node.first_child; child < nodes[i + 1].first_child; ++child)
      check(nodes[child].depth == node.depth + 1);
    check(node.token < static_cast<int64_t>(num_tokens));
    if (i == 0) continue;
    for (const uint32_t other : {node.fail, node.shorter, node.much_shorter})
      check(other < end && nodes[other].depth < node.depth);
    for (const uint32_t other : {node.shorter, node.much_shorter})
      check(other == 0 || nodes[other].token >= 0);
    check(node.depth <= kMaxTokenBytes);
  }
}

// A position whose candidate overlaps a taken one behind it goes back into the queue with the longest token
// that ends before that one. It does so a logarithmic number of times: what is taken is at least as long as
// the candidate that it shortens, and both lie in the room that the position had, so at most half is left.
std::vector<FoundToken> find_tokens(std::span<const FinderNode> nodes, std::span<const uint8_t> traits,
                                    std::string_view text) {
  std::vector<FoundToken> found;
  std::priority_queue<Candidate> queue(std::less<Candidate>(), longest_tokens(nodes, text));
  if (queue.empty()) return found;
  Taken taken(text.size());
  for (; !queue.empty();) {
    const Candidate best = queue.top();
    queue.pop();
    if (taken.at(best.begin)) continue;
    size_t end = size_t{best.begin} + best.depth;
    if (const size_t behind = taken.next(best.begin, end); behind < end) {
      const uint32_t node = longest_within(nodes, best.node, behind - best.begin);
      if (node != 0) queue.push(candidate(nodes, best.begin, node));
      continue;
    }
    size_t begin = best.begin;
    const uint8_t trait = traits[static_cast<size_t>(best.token)];
    if (trait & kStripsSpaceAfter)
      while (end < text.size() && is_space(text[end]) && !taken.at(end)) ++end;
    if (trait & kStripsSpaceBefore)
      while (begin > 0 && is_space(text[begin - 1]) && !taken.at(begin - 1)) --begin;
    taken.take(begin, end);
    found.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end), best.token});
  }
  std::sort(found.begin(), found.end(),
            [](const FoundToken& a, const FoundToken& b) { return a.begin < b.begin; });
  return found;
}

}  // namespace puna
