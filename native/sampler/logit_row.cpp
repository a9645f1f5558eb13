#include "sampler/logit_row.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"

namespace puna {
namespace {

size_t round_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

LogitRow::LogitRow(const Kernels& kernels, std::span<const float> logits, float inverse_temperature)
    : kernels_(&kernels),
      size_(static_cast<int64_t>(logits.size())),
      inverse_temperature_(inverse_temperature) {
  for (; logits.size() >= kLogitBlock; logits = logits.subspan(kLogitBlock)) blocks_.push_back(logits.data());
  if (!logits.empty()) {
    blocks_.push_back(nullptr);
    float* last = own_block(blocks_.size() - 1);
    std::fill(std::copy(logits.begin(), logits.end(), last), last + kLogitBlock, -kInfinity);
  }
  maxima_.resize(round_up(blocks_.size(), 16), -kInfinity);
  if (inverse_temperature > 0) sums_.resize(blocks_.size());
}

LogitRow::LogitRow(const Kernels& kernels, std::span<float> logits, float inverse_temperature,
                   const TokenMask& mask)
    : LogitRow(kernels, std::span<const float>(logits), inverse_temperature) {
  mask_ = &mask;
  masked_ = logits.data();
}

LogitRow::LogitRow(const Kernels& kernels, std::span<const float> logits, float inverse_temperature,
                   const TokenMask& mask)
    : LogitRow(kernels, logits, inverse_temperature) {
  mask_ = &mask;
  own_masked_ = std::make_unique_for_overwrite<float[]>(logits.size());
  masked_ = own_masked_.get();
}

LogitRow LogitRow::copy() const {
  LogitRow row(*kernels_, {}, inverse_temperature_);
  row.size_ = size_;
  row.max_ = max_;
  row.blocks_ = blocks_;
  row.maxima_ = maxima_;
  row.sums_ = sums_;
  return row;
}

// Returns whether anything of the block is allowed. A second time changes nothing.
bool LogitRow::mask_block(int64_t b) {
  static const std::vector<float> nothing(kLogitBlock, -kInfinity);
  const uint32_t* words = mask_->block(b);
  const float*& block = blocks_[static_cast<size_t>(b)];
  if (words == nullptr) {
    block = nothing.data();
    return false;
  }
  if (!mask_->allows_block(b)) {
    // The last block is this row's own if it was filled up.
    const bool is_own = !own_blocks_.empty() && own_blocks_[static_cast<size_t>(b)] != nullptr;
    float* masked = is_own ? own_blocks_[static_cast<size_t>(b)].get() : masked_ + b * kLogitBlock;
    kernels_->mask_logits(block, words, masked);
    block = masked;
  }
  return true;
}

// Not filled yet.
float* LogitRow::own_block(size_t b) {
  own_blocks_.resize(blocks_.size());
  own_blocks_[b] = std::make_unique_for_overwrite<float[]>(kLogitBlock);
  blocks_[b] = own_blocks_[b].get();
  return own_blocks_[b].get();
}

float& LogitRow::own_logit(int64_t token) {
  const auto b = static_cast<size_t>(token / kLogitBlock);
  if (own_blocks_.empty() || own_blocks_[b] == nullptr) {
    const float* shared = blocks_[b];
    std::copy(shared, shared + kLogitBlock, own_block(b));
  }
  return own_blocks_[b][static_cast<size_t>(token % kLogitBlock)];
}

void LogitRow::scan_own_blocks() {
  for (size_t b = 0; b < own_blocks_.size(); ++b)
    if (own_blocks_[b] != nullptr) scan(static_cast<int64_t>(b), static_cast<int64_t>(b) + 1);
}

void LogitRow::scan(int64_t begin, int64_t end) {
  // Blocks: still in the first cache when they are read for the second time, while more are on their way.
  constexpr int64_t kRun = 4;
  end = std::min(end, num_blocks());
  const auto has_any = [this](int64_t b) { return mask_ == nullptr || mask_block(b); };
  while (begin < end) {
    if (!has_any(begin)) {
      ++begin;
      continue;
    }
    int64_t n = 1;
    while (n < std::min(kRun, end - begin) && has_any(begin + n) &&
           block(begin + n) == block(begin) + n * kLogitBlock)
      ++n;
    kernels_->logit_maxima(block(begin), n, maxima_.data() + begin);
    if (!sums_.empty())
      kernels_->logit_sums(block(begin), n, maxima_.data() + begin, inverse_temperature_,
                           sums_.data() + begin);
    begin += n;
  }
}

void LogitRow::finish_scan() {
  max_ = -kInfinity;
  for (const float x : maxima_) {
    if (std::isnan(x)) throw Error("a logit is NaN");
    max_ = std::max(max_, x);
  }
  if (!std::isfinite(max_)) throw Error("the largest logit is " + std::to_string(max_));
}

int64_t LogitRow::argmax() const {
  const int64_t b = std::find(maxima_.begin(), maxima_.end(), max_) - maxima_.begin();
  return b * kLogitBlock + (std::find(block(b), block(b) + kLogitBlock, max_) - block(b));
}

std::vector<float> LogitRow::sums(float inverse_temperature) const {
  if (!sums_.empty() && inverse_temperature == inverse_temperature_) return sums_;
  std::vector<float> sums(blocks_.size());
  for (size_t b = 0; b < blocks_.size(); ++b)
    kernels_->logit_sums(blocks_[b], 1, &maxima_[b], inverse_temperature, &sums[b]);
  return sums;
}

// What a block's sum, which is relative to its own maximum, counts in the row.
std::vector<float> LogitRow::factors(float inverse_temperature) const {
  std::vector<float> factors(maxima_.size());
  kernels_->logit_weights(maxima_.data(), static_cast<int64_t>(maxima_.size()), max_, inverse_temperature,
                          factors.data());
  return factors;
}

// Of each block and all before it.
std::vector<double> LogitRow::masses(float inverse_temperature) const {
  const std::vector<float> sums = this->sums(inverse_temperature),
                           factors = this->factors(inverse_temperature);
  std::vector<double> masses(blocks_.size());
  double total = 0;
  for (size_t b = 0; b < masses.size(); ++b) masses[b] = total += double{sums[b]} * double{factors[b]};
  return masses;
}

double LogitRow::moment() const {
  const std::vector<float> sums = this->sums(1), factors = this->factors(1);
  double total = 0;
  for (size_t b = 0; b < blocks_.size(); ++b) {
    if (factors[b] == 0) continue;  // its maximum may be -infinity
    float moment;
    kernels_->logit_moments(blocks_[b], 1, &maxima_[b], &moment);
    total += double{factors[b]} * (moment + double{maxima_[b] - max_} * sums[b]);
  }
  return total;
}

int64_t LogitRow::draw(float inverse_temperature, double share) const {
  const std::vector<double> masses = this->masses(inverse_temperature);
  // Below the total even after rounding, so there is a block to find.
  const double target = share * masses.back();
  const auto b = static_cast<size_t>(std::upper_bound(masses.begin(), masses.end(), target) - masses.begin());
  float weights[kLogitBlock];
  kernels_->logit_weights(blocks_[b], kLogitBlock, maxima_[b], inverse_temperature, weights);
  double rest = (target - (b == 0 ? 0 : masses[b - 1])) / double{factors(inverse_temperature)[b]};
  int64_t drawn = 0;  // the last one with a weight, should rounding leave a rest
  for (int64_t i = 0; i < kLogitBlock && rest >= 0; ++i) {
    if (weights[i] > 0) drawn = i;
    rest -= double{weights[i]};
  }
  return static_cast<int64_t>(b) * kLogitBlock + drawn;
}

}  // namespace puna
