#include "executor/adapters/adapter.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "executor/check.h"

namespace puna {
namespace {

constexpr std::string_view kA = ".lora_a", kB = ".lora_b", kNorm = "_norm.weight";
constexpr std::align_val_t kAlignment{64};

std::string joined(const std::string& name, std::string_view suffix) { return name + std::string(suffix); }

void require_shape(const std::string& name, const Weight& weight, int64_t cols, int64_t rows) {
  require(weight.cols == cols && weight.rows == rows,
          "tensor " + name + " has shape [" + text(weight.cols) + ", " + text(weight.rows) +
              "] where the model needs [" + text(cols) + ", " + text(rows) + "]");
}

int64_t float_bytes(TensorType type) { return type == TensorType::kF32 ? 4 : 2; }

int64_t lane_bytes(const LaneWeight& weight) {
  const int64_t rows = (weight.rows + kRowTile - 1) / kRowTile * kRowTile;
  return rows * weight.cols * float_bytes(weight.type);
}

// One row of values of a float type into its lane of each column.
void scatter(const uint8_t* values, int64_t cols, int64_t value_bytes, uint8_t* to) {
  for (int64_t c = 0; c < cols; ++c)
    std::memcpy(to + c * kRowTile * value_bytes, values + c * value_bytes, static_cast<size_t>(value_bytes));
}

void pack(const Weight& from, const LaneWeight& weight, uint8_t* to) {
  const int64_t size = float_bytes(weight.type);
  std::vector<float> values(static_cast<size_t>(is_float(from.type) ? 0 : from.cols));
  std::memset(to, 0, static_cast<size_t>(lane_bytes(weight)));
  for (int64_t r = 0; r < from.rows; ++r) {
    const uint8_t* row = from.row(r);
    if (!is_float(from.type)) {
      dequantize(from.type, row, values.data(), from.cols);
      row = reinterpret_cast<const uint8_t*>(values.data());
    }
    scatter(row, from.cols, size, to + (r / kRowTile * kRowTile * from.cols + r % kRowTile) * size);
  }
}

}  // namespace

Adapter::Adapter(std::shared_ptr<GgufFile> file, std::span<const AdapterSite> sites, const GgufFile& model,
                 float alpha)
    : file_(std::move(file)) {
  check_names(sites, model);
  pairs_.reserve(sites.size());
  for (const AdapterSite& site : sites) {
    pairs_.push_back(find(site, alpha));
    if (!pairs_.back()) continue;
    LowRank& pair = *pairs_.back();
    if (!site.is_embedding) place(pair.down, pair.a);
    place(pair.up, pair.b);
  }
  require(packed_bytes_ > 0, "the adapter changes nothing");
}

void Adapter::check_names(std::span<const AdapterSite> sites, const GgufFile& model) const {
  for (const TensorEntry& entry : file_->metadata()->tensors().entries()) {
    const std::string& name = entry.name;
    const bool is_pair = name.ends_with(kA) || name.ends_with(kB);
    if (!is_pair && name.ends_with(kNorm))
      continue;  // llama.cpp, whose format this is, passes them over, too
    require(is_pair, "tensor " + name + " is no part of an adapter");
    const std::string base = name.substr(0, name.size() - kA.size());
    const auto is_base = [&](const AdapterSite& site) { return site.tensor == base; };
    const auto site = std::find_if(sites.begin(), sites.end(), is_base);
    if (site == sites.end()) {
      require(model.metadata()->tensors().find(base) != nullptr,
              "tensor " + name + ": the model has no tensor " + base + "; the adapter is for another one");
      throw Error("tensor " + name + ": adapters cannot change a tensor of this kind");
    }
    require(!(site->is_linear && site->is_embedding),
            "tensor " + name + ": adapters cannot change embeddings that are the output's matrix, too");
  }
}

std::optional<LowRank> Adapter::find(const AdapterSite& site, float alpha) {
  const std::string a = joined(site.tensor, kA), b = joined(site.tensor, kB);
  const TensorIndex& tensors = file_->metadata()->tensors();
  const bool has_a = tensors.find(a) != nullptr, has_b = tensors.find(b) != nullptr;
  if (!has_a && !has_b) return {};
  require(has_a && has_b, "tensor " + (has_a ? a : b) + " stands alone: there is no " + (has_a ? b : a));
  LowRank pair{.rank = 0, .scale = 1.0f, .a = file_->weight(a), .b = file_->weight(b), .down = {}, .up = {}};
  pair.rank = pair.b.cols;
  require_range(("the rank of tensor " + b).c_str(), pair.rank, 1, kMaxRank);
  if (site.is_embedding) {
    require_shape(a, pair.a, pair.rank, site.rows);
    require_shape(b, pair.b, pair.rank, site.cols);
    num_bytes_ += static_cast<int64_t>(pair.a.row_bytes) * pair.a.rows;
  } else {
    require_shape(a, pair.a, site.cols, pair.rank);
    require_shape(b, pair.b, pair.rank, site.rows);
  }
  if (alpha != 0.0f) pair.scale = alpha / static_cast<float>(pair.rank);
  return pair;
}

void Adapter::place(LaneWeight& weight, const Weight& from) {
  weight = {is_float(from.type) ? from.type : TensorType::kF32, nullptr, from.rows, from.cols};
  packed_bytes_ += lane_bytes(weight);  // a multiple of 32
  num_bytes_ += lane_bytes(weight);
}

void Adapter::prepare(ThreadPool& pool) {
  if (packed_) return;
  std::shared_ptr<uint8_t[]> packed;  // kept once all of it is there
  try {
    packed = {static_cast<uint8_t*>(::operator new(static_cast<size_t>(packed_bytes_), kAlignment)),
              [](uint8_t* p) { ::operator delete(p, kAlignment); }};
  } catch (const std::bad_alloc&) {
    throw Error("no memory for the " + text(packed_bytes_) + " bytes of the adapter");
  }
  struct Part {
    const Weight* from;
    LaneWeight* weight;
    uint8_t* to;
  };
  std::vector<Part> parts;
  uint8_t* next = packed.get();
  for (std::optional<LowRank>& pair : pairs_) {
    if (!pair) continue;
    for (const auto& [from, weight] : {std::pair{&pair->a, &pair->down}, std::pair{&pair->b, &pair->up}}) {
      if (weight->rows == 0) continue;
      weight->data = next;
      parts.push_back({from, weight, next});
      next += lane_bytes(*weight);
    }
  }
  pool.parallel_for(static_cast<int64_t>(parts.size()), [&](int64_t i) {
    const Part& part = parts[static_cast<size_t>(i)];
    pack(*part.from, *part.weight, part.to);
  });
  file_->check_whole();
  packed_ = std::move(packed);
  file_->release_pages();
}

void Adapter::release() {
  packed_ = {};
  file_->release_pages();
}

}  // namespace puna
