// Single tokens of one layer's part of a block; kv/layout.h gives the layouts.
#pragma once

#include <cstdint>

#include "kv/layout.h"

namespace puna {

// Neighbouring tokens of a block, and where in a block they go.
struct SlotRun {
  const uint8_t* source;  // a block, or a layer's K or V in it
  uint8_t* destination;   // the same of another block, or of this one
  int source_slot, destination_slot, count;

  SlotRun at(int64_t offset) const {
    return {source + offset, destination + offset, source_slot, destination_slot, count};
  }
};

// Bit by bit. Source and destination may overlap.
void copy_keys(KvType type, const KvLayout& layout, const SlotRun& run);
void copy_values(const KvLayout& layout, const SlotRun& run);

// A token's keys as floats, [layout's heads][head_dim].
void read_keys(KvType type, const KvLayout& layout, int64_t head_dim, const uint8_t* block, int slot,
               float* keys);

}  // namespace puna
