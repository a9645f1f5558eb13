// Tokens that change their place in the KV memory, and with it their position.
#pragma once

#include <cstdint>
#include <span>

#include "executor/program/program.h"

namespace puna {

// Tokens at positions [source_begin, source_begin + num_tokens) of one block table go to destination_begin
// and on of another, or to lower positions of the same one.
struct KvMove {
  size_t group;  // of layers
  std::span<const int32_t> source, destination;
  int64_t source_begin, destination_begin, num_tokens;

  BlockSpace blocks;
};

// As Program::move_kv().
void move_kv(const Plan& plan, ThreadPool& pool, const KvMove& move);

}  // namespace puna
