// A LoRA adapter (Hu et al., 2021): beside a matrix W of a model stand two of low rank, and what W makes of x
// is W x + scale * B (A x). Files are a stranger's: nothing about them is taken for granted.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "executor/threads/thread_pool.h"
#include "gguf/gguf_file.h"
#include "kernels/kernels.h"

namespace puna {

// A matrix of a model that adapters may change.
struct AdapterSite {
  std::string tensor;
  int64_t rows, cols;
  bool is_linear = false, is_embedding = false;  // what reads it
};

inline constexpr int64_t kMaxRank = 1024;
// A x is summed up in segments of as many columns, which any thread may compute; they are added in order.
inline constexpr int64_t kAdapterSegment = 512;
constexpr int64_t num_adapter_segments(int64_t cols) {
  return (cols + kAdapterSegment - 1) / kAdapterSegment;
}

// A and B of one matrix.
struct LowRank {
  int64_t rank;
  float scale;
  Weight a, b;      // in the file: a [rank, cols]; of an embedding [tokens, rank]. b [rows, rank].
  LaneWeight down;  // a for the kernels; not of an embedding
  LaneWeight up;    // b for the kernels

  int64_t padded_rank() const { return (rank + kRowTile - 1) / kRowTile * kRowTile; }
};

class Adapter {
 public:
  // sites: of the model, which has the tensors of `model`. alpha: of the file's metadata, 0 if it has none:
  // the scale is alpha / rank, or 1. Throws Error, naming the tensor, for what does not fit the model.
  Adapter(std::shared_ptr<GgufFile> file, std::span<const AdapterSite> sites, const GgufFile& model,
          float alpha);

  // nullptr: nothing changes that site.
  const LowRank* at(int site) const {
    const auto& found = pairs_[static_cast<size_t>(site)];
    return found ? &*found : nullptr;
  }
  // Memory that it takes once it is used, with what steps need for it.
  int64_t num_bytes() const { return num_bytes_ + scratch_bytes_; }
  void count_scratch(int64_t num_bytes) { scratch_bytes_ = num_bytes; }

  // Brings matrices into the kernels' form, unless they are. Throws Error if there is no memory for them, or
  // if the file was cut short. Not while another thread uses it.
  void prepare(ThreadPool& pool);
  // Throws Error if the file was cut short.
  void check_whole() const { file_->check_whole(); }
  // Gives that memory back.
  void release();

 private:
  std::optional<LowRank> find(const AdapterSite& site, float alpha);
  void check_names(std::span<const AdapterSite> sites, const GgufFile& model) const;
  void place(LaneWeight& weight, const Weight& from);

  std::shared_ptr<GgufFile> file_;
  std::vector<std::optional<LowRank>> pairs_;  // of each site
  int64_t num_bytes_ = 0, packed_bytes_ = 0, scratch_bytes_ = 0;
  std::shared_ptr<uint8_t[]> packed_;
};

}  // namespace puna
