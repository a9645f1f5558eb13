#include "normalization/char_map.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "gguf/reader.h"

namespace puna {
namespace {

// Bits of a node: its children lie at its index XOR this.
uint32_t children(uint32_t node) { return (node >> 10) << ((node & (1u << 9)) >> 6); }
uint32_t label(uint32_t node) { return node & ((1u << 31) | 0xff); }
bool ends_key(uint32_t node) { return (node >> 8 & 1) != 0; }
uint32_t value(uint32_t node) { return node & ((1u << 31) - 1); }

}  // namespace

CharMap::CharMap(std::span<const uint32_t> nodes, std::string_view replacements)
    : nodes_(nodes), replacements_(replacements) {
  for (std::string_view rest = replacements; !rest.empty();) {
    const size_t length = rest.find('\0');
    if (length == std::string_view::npos || length > kMaxReplacementBytes || !is_utf8(rest.substr(0, length)))
      throw Error("a map of characters has a replacement that is no text or too long");
    rest.remove_prefix(length + 1);
  }
}

CharMap::Found CharMap::find(std::string_view text) const {
  if (nodes_.empty()) return {};
  uint32_t found = 0;
  size_t length = 0;
  uint32_t index = children(nodes_[0]);
  for (size_t at = 0; at < std::min(text.size(), kMaxKeyBytes); ++at) {
    const auto byte = static_cast<uint8_t>(text[at]);
    index ^= byte;
    if (byte == 0 || index >= nodes_.size() || label(nodes_[index]) != byte) break;
    const uint32_t node = nodes_[index];
    index ^= children(node);
    if (index >= nodes_.size()) break;
    if (ends_key(node)) {
      found = value(nodes_[index]);
      length = at + 1;
    }
  }
  const bool begins = found < replacements_.size() && (found == 0 || replacements_[found - 1] == '\0');
  if (length == 0 || !begins || (length < text.size() && (text[length] & 0xc0) == 0x80)) return {};
  return {replacements_.substr(found, replacements_.find('\0', found) - found), length};
}

}  // namespace puna
