// A row of logits as the sampler reads it: once, block by block; what it finds is kept per block, so that
// most questions are answered without reading the row again.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "sampler/token_mask.h"

namespace puna {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Candidate {
  float logit;
  int32_t token;
};

class LogitRow {
 public:
  // The logits must outlive the row. inverse_temperature: the one at which sums will be asked for; 0: none.
  // scan() of all blocks and finish_scan() must follow.
  LogitRow(const Kernels& kernels, std::span<const float> logits, float inverse_temperature);
  // Of what the mask does not allow the logits are -infinity, from scan() on, which the mask must outlive.
  // They are overwritten where they are: a copy of a large row costs more than all else that is done with it.
  LogitRow(const Kernels& kernels, std::span<float> logits, float inverse_temperature, const TokenMask& mask);
  // The same, of logits that others read, too: with blocks of its own.
  LogitRow(const Kernels& kernels, std::span<const float> logits, float inverse_temperature,
           const TokenMask& mask);
  LogitRow(LogitRow&&) = default;

  // Reads blocks [begin, end), as far as there are any. Different blocks may be scanned at the same time.
  void scan(int64_t begin, int64_t end);
  // Error unless the largest logit is finite and no logit is NaN.
  void finish_scan();

  // The same row, scanned, which shares the blocks of this one until they are changed.
  LogitRow copy() const;
  // A logit to be changed; scan_own_blocks() and finish_scan() must follow.
  float& own_logit(int64_t token);
  void scan_own_blocks();

  const Kernels& kernels() const { return *kernels_; }
  int64_t size() const { return size_; }
  bool has_sums() const { return !sums_.empty(); }
  int64_t num_blocks() const { return static_cast<int64_t>(blocks_.size()); }
  const float* block(int64_t b) const { return blocks_[static_cast<size_t>(b)]; }
  std::span<const float> maxima() const { return {maxima_.data(), blocks_.size()}; }
  float logit(int64_t token) const { return block(token / kLogitBlock)[token % kLogitBlock]; }

  // The largest logit.
  float max() const { return max_; }
  // The first place of the largest logit.
  int64_t argmax() const;
  // Sum of exp(logit - max()).
  double total() const { return masses(1).back(); }
  // Sum of (logit - max()) * exp(logit - max()).
  double moment() const;
  // The place at which the running sum of exp(logit * inverse_temperature) passes this share of the total, in
  // [0, 1).
  int64_t draw(float inverse_temperature, double share) const;

 private:
  bool mask_block(int64_t b);
  float* own_block(size_t b);
  std::vector<float> sums(float inverse_temperature) const;
  std::vector<float> factors(float inverse_temperature) const;
  std::vector<double> masses(float inverse_temperature) const;

  const Kernels* kernels_;
  int64_t size_;
  float inverse_temperature_;
  float max_ = 0;
  std::vector<const float*> blocks_;
  std::vector<std::unique_ptr<float[]>> own_blocks_;  // empty, or some: the last one filled up, changed ones
  const TokenMask* mask_ = nullptr;
  float* masked_ = nullptr;              // where the row is written under the mask, all its whole blocks
  std::unique_ptr<float[]> own_masked_;  // empty, or masked_
  std::vector<float> maxima_;            // with -infinity up to a multiple of 16
  std::vector<float> sums_;              // empty, or at inverse_temperature_
};

}  // namespace puna
