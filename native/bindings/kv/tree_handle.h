// A KvBlocks' tree, as Python sees it.
#pragma once

#include <memory>

#include "base/assertion.h"
#include "kv/table/sequence_table.h"

namespace puna {

struct Tree {
  std::shared_ptr<KvBlocks> kv;

  PrefixTree& of(const SequenceTable& table) const {
    require(table.kv() == kv, "a table of another model");
    return kv->tree();
  }
};

}  // namespace puna
