#include <cmath>

#include "executor/check.h"
#include "executor/ops/ops.h"
#include "executor/step.h"

namespace puna {
namespace {

int64_t position_of(const RowRun& row, Domain domain) {
  const Batch& batch = row.step.batch;
  return batch.positions[static_cast<size_t>(token_of(batch, domain, row.row))];
}

// Where a table for such rows is made: for tokens in what embeds them, with which a run begins.
int table_stage(ProgramBuilder& builder, Domain domain) {
  return domain == Domain::kTokens ? builder.first_stage() : builder.token_stage(domain);
}

// Cosines, then sines, of the position of each row's token. Layers with the same frequencies share a table.
RopeTable rope_table(ProgramBuilder& builder, Domain domain, const std::vector<float>& inv_freq, float scale,
                     int64_t offset) {
  const std::tuple<Domain, std::vector<float>, float, int64_t> key{domain, inv_freq, scale, offset};
  if (const auto found = builder.rope_tables.find(key); found != builder.rope_tables.end())
    return found->second;
  const auto half = static_cast<int64_t>(inv_freq.size());
  const float* frequencies = builder.constant(inv_freq);
  const int out = builder.scratch(2 * half * static_cast<int64_t>(sizeof(float)));
  const auto run = [=](const RowRun& row) {
    float* table = row.at(out);
    const auto position = static_cast<double>(position_of(row, domain) + offset);
    for (int64_t i = 0; i < half; ++i) {
      const double angle = position * static_cast<double>(frequencies[i]);
      table[i] = static_cast<float>(std::cos(angle)) * scale;
      table[half + i] = static_cast<float>(std::sin(angle)) * scale;
    }
  };
  builder.append(table_stage(builder, domain), {{}, out, 1, run});
  return builder.rope_tables.emplace(key, RopeTable{out, frequencies}).first->second;
}

// In place.
void rope(ProgramBuilder& builder, const OpCall& call) {
  call.expect(1, 1, 0);
  const int x = call.inputs[0];
  require(call.outputs[0] == x, "rotation happens in place");
  const int64_t head_dim = call.integer("head_dim", 1, kMaxHeads), num_heads = builder.width(x) / head_dim;
  builder.expect_width(x, num_heads * head_dim);
  const std::vector<float>& inv_freq = call.floats("inv_freq");
  const auto rotary_dim = 2 * static_cast<int64_t>(inv_freq.size());
  const int64_t begin = call.integer("begin", 0, head_dim);
  require(rotary_dim >= 2 && rotary_dim <= head_dim - begin,
          text(rotary_dim / 2) + " rotary frequencies do not fit a head of " + text(head_dim));
  for (const float frequency : inv_freq)
    require(std::isfinite(frequency), "a rotary frequency is not finite");
  const std::string& style = call.text("style");
  require(style == "normal" || style == "neox", "unknown rotation \"" + style + "\" (normal, neox)");
  const Domain domain = builder.domain(x);
  const int64_t offset = call.integer("offset", 0, INT32_MAX);
  const RopeTable table = rope_table(builder, domain, inv_freq, call.number("scale"), offset);
  const auto rotate = style == "neox" ? builder.kernels().rope_neox : builder.kernels().rope_normal;
  const auto run = [=](const RowRun& row) {
    const float* cos = row.at(table.buffer);
    rotate(row.at(x) + row.first(num_heads) * head_dim + begin, row.count(num_heads), head_dim, rotary_dim,
           cos, cos + rotary_dim / 2);
  };
  builder.append(builder.token_stage(domain), {{x, table.buffer}, x, num_heads, run});
  builder.set_rotation(x, {rotate, num_heads, head_dim, begin, rotary_dim, table.inv_freq});
}

// x times a factor that grows with the token's position.
void temperature(ProgramBuilder& builder, const OpCall& call) {
  call.expect(1, 1, 0);
  const int x = call.inputs[0], out = call.outputs[0];
  const int64_t width = builder.width(out), length = call.integer("length", 1, INT32_MAX);
  const int64_t offset = call.integer("offset", 0, INT32_MAX);
  const double scale = call.number("scale");
  builder.expect_width(x, width);
  const Domain domain = builder.domain(x);
  const auto run = [=](const RowRun& row) {
    const int64_t first = row.first(width);
    const int64_t stretch = (position_of(row, domain) + offset) / length;
    const auto factor = static_cast<float>(1.0 + scale * std::log1p(static_cast<double>(stretch)));
    row.kernels.scale(row.at(x) + first, factor, row.count(width), row.at(out) + first);
  };
  builder.append(builder.token_stage(domain), {{x}, out, pieces_of_columns(width), run});
}

constexpr OpDefinition kRopeDefinitions[] = {{"Rope", rope}, {"Temperature", temperature}};

}  // namespace

const OpFamily kRopeOps = kRopeDefinitions;

}  // namespace puna
