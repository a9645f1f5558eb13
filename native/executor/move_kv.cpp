#include "executor/move_kv.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>
#include <vector>

#include "executor/check.h"
#include "kv/slots.h"

namespace puna {
namespace {

void check_range(const KvMove& move, const char* name, std::span<const int32_t> table, int64_t begin) {
  const int64_t capacity = static_cast<int64_t>(table.size()) * kBlockTokens;
  require(begin >= 0 && move.num_tokens <= capacity - begin,
          std::string(name) + ": " + text(move.num_tokens) + " tokens from position " + text(begin) +
              " do not lie within its " + text(table.size()) + " blocks");
  if (move.num_tokens == 0) return;
  for (int64_t i = begin / kBlockTokens; i <= (begin + move.num_tokens - 1) / kBlockTokens; ++i) {
    const int32_t block = table[static_cast<size_t>(i)];
    require(block >= 0 && block < move.blocks.num_blocks(), std::string(name) + "[" + text(i) + "] is " +
                                                                text(block) + ", outside of the " +
                                                                text(move.blocks.num_blocks()) + " blocks");
  }
}

// Maximal runs within one block each, in the order of the tokens.
std::vector<SlotRun> runs_of(const KvMove& move) {
  std::vector<SlotRun> runs;
  for (int64_t done = 0; done < move.num_tokens;) {
    const int64_t from = move.source_begin + done, to = move.destination_begin + done;
    const int64_t source_slot = from % kBlockTokens, destination_slot = to % kBlockTokens;
    const int64_t count =
        std::min(move.num_tokens - done, kBlockTokens - std::max(source_slot, destination_slot));
    const auto block = [&](std::span<const int32_t> table, int64_t position) {
      return move.blocks[table[static_cast<size_t>(position / kBlockTokens)]];
    };
    runs.push_back({block(move.source, from), block(move.destination, to), static_cast<int>(source_slot),
                    static_cast<int>(destination_slot), static_cast<int>(count)});
    done += count;
  }
  return runs;
}

// A token that is overwritten before it is moved would be lost.
void check_order(const KvMove& move) {
  const auto for_blocks = [&](std::span<const int32_t> table, int64_t begin, auto&& body) {
    for (int64_t i = begin / kBlockTokens; i * kBlockTokens < begin + move.num_tokens; ++i)
      body(table[static_cast<size_t>(i)], i * kBlockTokens - begin);  // its first slot's place in the order
  };
  std::unordered_map<int32_t, int64_t> read;
  for_blocks(move.source, move.source_begin, [&](int32_t block, int64_t at) { read.emplace(block, at); });
  for_blocks(move.destination, move.destination_begin, [&](int32_t block, int64_t at) {
    const auto found = read.find(block);
    require(found == read.end() || found->second <= at,
            "block " + text(block) + " would be written before its tokens have been moved");
  });
}

void check_move(const Plan& plan, const KvMove& move) {
  require(move.group < plan.groups.size(), "there is no group " + text(move.group) + " of layers");
  require(!plan.groups[move.group].is_state, "group " + text(move.group) + ": states cannot be moved");
  const int64_t block_bytes = plan.groups[move.group].block_bytes;
  require(move.blocks.block_bytes() == block_bytes, "group " + text(move.group) + ": blocks have " +
                                                        text(move.blocks.block_bytes()) +
                                                        " bytes, the model's " + text(block_bytes));
  require(move.num_tokens >= 0, "the number of tokens is negative");
  check_range(move, "source", move.source, move.source_begin);
  check_range(move, "destination", move.destination, move.destination_begin);
  require(plan.can_shift || move.source_begin == move.destination_begin,
          "this model's keys cannot be turned to another position");
  check_order(move);
}

// Frequencies -> cosines, then sines, of the angles by which keys turn.
using Turns = std::map<const float*, std::vector<float>>;

Turns turns_of(std::span<const KvLayer* const> layers, int64_t distance) {
  Turns turns;
  if (distance == 0) return turns;
  for (const KvLayer* layer : layers) {
    if (!layer->rotation) continue;
    std::vector<float>& turn = turns[layer->rotation->inv_freq];
    const int64_t half = layer->rotation->rotary_dim / 2;
    if (!turn.empty()) continue;
    turn.resize(static_cast<size_t>(2 * half));
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(distance) * static_cast<double>(layer->rotation->inv_freq[i]);
      turn[static_cast<size_t>(i)] = static_cast<float>(std::cos(angle));
      turn[static_cast<size_t>(half + i)] = static_cast<float>(std::sin(angle));
    }
  }
  return turns;
}

// One layer's share of a move.
struct LayerMove {
  const Plan& plan;
  const KvLayer& layer;
  const float* turn;  // nullptr: keys stay as they are
  float* keys;        // of one token

  void turn_keys(const SlotRun& run) const {
    const KeyRotation& rotation = *layer.rotation;
    for (int i = 0; i < run.count; ++i) {
      read_keys(plan.kv_type, layer.layout, layer.head_dim, run.source, run.source_slot + i, keys);
      rotation.rotate(keys + rotation.begin, rotation.num_heads, rotation.head_dim, rotation.rotary_dim, turn,
                      turn + rotation.rotary_dim / 2);
      plan.kernels->store_kv(plan.kv_type, layer.layout, keys, nullptr, 0, layer.num_kv_heads, layer.head_dim,
                             run.destination_slot + i, run.destination, nullptr);
    }
  }

  void move(const SlotRun& run) const {
    const SlotRun keys_run = run.at(layer.k_offset);
    if (turn == nullptr) {
      copy_keys(plan.kv_type, layer.layout, keys_run);
    } else {
      turn_keys(keys_run);
    }
    if (!layer.is_latent) copy_values(layer.layout, run.at(layer.v_offset));
  }
};

}  // namespace

void move_kv(const Plan& plan, ThreadPool& pool, const KvMove& move) {
  check_move(plan, move);
  const std::vector<SlotRun> runs = runs_of(move);
  std::vector<const KvLayer*> layers;
  for (const KvLayer& layer : plan.layers)
    if (static_cast<size_t>(layer.group) == move.group) layers.push_back(&layer);
  const Turns turns = turns_of(layers, move.destination_begin - move.source_begin);
  std::vector<std::vector<float>> keys;  // no allocation may fail once something is written
  for (const KvLayer* layer : layers)
    keys.emplace_back(static_cast<size_t>(layer->num_kv_heads) * static_cast<size_t>(layer->head_dim));
  const auto move_layer = [&](int64_t i) {
    const KvLayer& layer = *layers[static_cast<size_t>(i)];
    const float* turn =
        turns.empty() || !layer.rotation ? nullptr : turns.at(layer.rotation->inv_freq).data();
    const LayerMove layer_move{plan, layer, turn, keys[static_cast<size_t>(i)].data()};
    for (const SlotRun& run : runs) layer_move.move(run);
  };
  constexpr int64_t kWorthWaking = 1 << 18;  // bytes: copied in about the time in which threads wake
  const auto num_layers = static_cast<int64_t>(layers.size());
  if (move.num_tokens * move.blocks.block_bytes() / kBlockTokens > kWorthWaking)
    return pool.parallel_for(num_layers, move_layer);
  for (int64_t i = 0; i < num_layers; ++i) move_layer(i);
}

}  // namespace puna
