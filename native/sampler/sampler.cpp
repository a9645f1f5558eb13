#include "sampler/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

#include "base/error.h"
#include "sampler/random.h"

namespace puna {
namespace {

constexpr float kNoLogit = std::numeric_limits<float>::lowest();  // at or below all finite ones

// With these, no sum or product of a logit that a model might mean leaves the range of floats.
constexpr float kMostRepeatPenalty = 1000, kMostPenalty = 100, kMostBias = 100;

std::string readable(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

void require(bool holds, const char* name, double value, const char* rule) {
  if (!holds) throw Error(std::string(name) + " is " + readable(value) + ", but " + rule);
}

void require_within(const char* name, float value, float least, float most) {
  const std::string rule = "must be from " + readable(least) + " to " + readable(most);
  require(value >= least && value <= most, name, value, rule.c_str());
}

void check(const SamplingParams& params) {
  const std::pair<const char*, float> finite[] = {
      {"temperature", params.temperature},
      {"top_p", params.top_p},
      {"min_p", params.min_p},
      {"typical_p", params.typical_p},
      {"repeat_penalty", params.repeat_penalty},
      {"presence_penalty", params.presence_penalty},
      {"frequency_penalty", params.frequency_penalty},
  };
  for (const auto& [name, value] : finite) require(std::isfinite(value), name, value, "must be finite");
  require_within("repeat_penalty", params.repeat_penalty, 1 / kMostRepeatPenalty, kMostRepeatPenalty);
  require_within("presence_penalty", params.presence_penalty, -kMostPenalty, kMostPenalty);
  require_within("frequency_penalty", params.frequency_penalty, -kMostPenalty, kMostPenalty);
  require(params.repeat_last_n >= -1, "repeat_last_n", static_cast<double>(params.repeat_last_n),
          "must be -1 or more");
  require(params.num_logprobs >= -1, "num_logprobs", static_cast<double>(params.num_logprobs),
          "must be -1 or more");
  for (const auto& [token, bias] : params.logit_bias) {
    require(token >= 0, "a token of logit_bias", static_cast<double>(token), "must not be negative");
    if (bias != -kInfinity) require_within("a logit_bias", bias, -kMostBias, kMostBias);  // or never drawn
  }
}

bool has_penalties(const SamplingParams& params) {
  return params.repeat_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0;
}

}  // namespace

Sampler::Sampler(SamplingParams params)
    : params_(std::move(params)), recent_(has_penalties(params_) ? params_.repeat_last_n : 0) {
  check(params_);
}

float Sampler::inverse_temperature() const {
  // Finite, also times log2(e): the likeliest token's difference of 0 stays 0.
  return std::min(1 / params_.temperature, std::numeric_limits<float>::max() / 2);
}

float Sampler::scan_inverse_temperature() const {
  if (wants_logprobs()) return 1;
  if (params_.temperature <= 0 || params_.top_k > 0) return 0;
  return is_filtered() ? 1 : inverse_temperature();
}

Sample Sampler::sample(LogitRow& row, Candidates& candidates) const {
  row.finish_scan();
  Sample sample = {};
  sample.token = draw(row, candidates);
  add_logprobs(row, candidates, sample);
  return sample;
}

Sample Sampler::sample(LogitRow& row, LogitRow& masked, const TokenMask& mask, Candidates& candidates) const {
  Sample sample = {};
  if (mask.only()) {
    sample.token = *mask.only();
    if (sample.token >= row.size()) throw Error("the only token that is allowed is none of the model's");
    if (is_banned(sample.token)) throw Error("logit_bias bans the only token that is allowed");
  } else {
    masked.finish_scan();
    sample.token = draw(masked, candidates);
  }
  if (wants_logprobs()) row.finish_scan();
  add_logprobs(row, candidates, sample);
  return sample;
}

int32_t Sampler::draw(const LogitRow& row, Candidates& candidates) const {
  if (!changes_logits()) return choose(row, candidates);
  LogitRow changed = row.copy();
  change_logits(changed);
  return choose(changed, candidates);
}

void Sampler::commit(const Sample& sample) {
  ++num_drawn_;
  recent_.add(sample.token);
}

bool Sampler::is_banned(int32_t token) const {
  const auto bans = [&](const auto& bias) { return bias.first == token && bias.second == -kInfinity; };
  return std::any_of(params_.logit_bias.begin(), params_.logit_bias.end(), bans);
}

bool Sampler::changes_logits() const { return !params_.logit_bias.empty() || !recent_.counts().empty(); }

void Sampler::change_logits(LogitRow& row) const {
  const auto in_vocabulary = [&](int64_t token) { return token >= 0 && token < row.size(); };
  for (const auto& [token, bias] : params_.logit_bias)
    if (in_vocabulary(token)) row.own_logit(token) += bias;
  for (const auto& [token, count] : recent_.counts()) {
    if (!in_vocabulary(token)) continue;
    float& logit = row.own_logit(token);
    // Dividing a negative logit would make its token likelier.
    logit = logit > 0 ? logit / params_.repeat_penalty : logit * params_.repeat_penalty;
    logit -= static_cast<float>(count) * params_.frequency_penalty + params_.presence_penalty;
  }
  row.scan_own_blocks();
  row.finish_scan();
}

bool Sampler::is_filtered() const {
  return params_.top_k > 0 || params_.typical_p < 1 || params_.top_p < 1 || params_.min_p > 0;
}

// Tokens are drawn in the order of their ids, whatever the filters.
int32_t Sampler::choose(const LogitRow& row, Candidates& candidates) const {
  if (params_.temperature <= 0) return static_cast<int32_t>(row.argmax());
  const float beta = inverse_temperature();
  const double share = uniform(params_.seed, num_drawn_);
  if (!is_filtered()) return static_cast<int32_t>(row.draw(beta, share));
  filter(row, candidates);
  return candidates.token(candidates.row(row.kernels(), beta).draw(beta, share));
}

void Sampler::filter(const LogitRow& row, Candidates& candidates) const {
  const Kernels& kernels = row.kernels();
  const bool nucleus = params_.top_p < 1 || params_.min_p > 0, typical = params_.typical_p < 1;
  if (params_.top_k > 0) {
    candidates.collect_most_likely(row, params_.top_k);
    if (typical) keep_typical(candidates, candidates.row(kernels, 1));
    if (nucleus) keep_nucleus(candidates, candidates.row(kernels, 1));
  } else if (typical) {
    candidates.collect(row, kNoLogit);
    keep_typical(candidates, row);
    if (nucleus) keep_nucleus(candidates, candidates.row(kernels, 1));
  } else {
    candidates.collect(row, nucleus_bound(row));
    keep_nucleus(candidates, row);
  }
}

// Keeps the tokens whose surprise, -log p, is nearest to its expectation, the entropy (Meister et al., 2022).
// Both hold the same log of the sum, so logits and their mean serve as well. row: of these candidates.
void Sampler::keep_typical(Candidates& candidates, const LogitRow& row) const {
  const float max = row.max();
  const double total = row.total(), mean = row.moment() / total;
  // Strictly more than its share.
  const double target = std::nextafter(params_.typical_p * total, kInfinity);
  candidates.keep_best(row.kernels(), {static_cast<float>(max + mean)}, {max, 1}, target);
}

// A logit below which neither top-p nor min-p keeps a token. The tokens whose probability is below
// (1 - top_p) / count have less than 1 - top_p together, so the others reach top_p without them.
float Sampler::nucleus_bound(const LogitRow& row) const {
  constexpr double kMargin = 1e-3;  // against rounding: what is kept must be decided by keep_nucleus alone
  const double top_p = std::clamp(params_.top_p, 0.0f, 1.0f);
  const double by_top_p = std::log((1 - top_p) * row.total() / static_cast<double>(row.size()));
  const double by_min_p = std::log(std::clamp(params_.min_p, 0.0f, 1.0f));
  return std::max(row.max() + static_cast<float>(std::max(by_top_p, by_min_p) - kMargin), kNoLogit);
}

// top-p, then min-p: each keeps a prefix of the candidates by likelihood, so min-p may as well go first, with
// the sum of all kept for top-p. row: of these candidates, or more that are below the nucleus_bound().
void Sampler::keep_nucleus(Candidates& candidates, const LogitRow& row) const {
  const float max = row.max();
  if (params_.min_p > 0) {
    const auto log_min_p = std::log(static_cast<double>(std::min(params_.min_p, 1.0f)));
    candidates.drop_below(row.kernels(), max + static_cast<float>(log_min_p));
  }
  if (params_.top_p >= 1) return;
  candidates.keep_best(row.kernels(), {}, {max, 1}, params_.top_p * row.total());
}

void Sampler::add_logprobs(const LogitRow& row, Candidates& candidates, Sample& sample) const {
  sample.logprob = std::numeric_limits<float>::quiet_NaN();
  if (!wants_logprobs()) return;
  const double log_total = std::log(row.total());
  const auto logprob = [&](float logit) { return static_cast<float>(logit - row.max() - log_total); };
  sample.logprob = logprob(row.logit(sample.token));
  if (params_.num_logprobs == 0) return;
  candidates.collect_most_likely(row, params_.num_logprobs);
  for (const Candidate& candidate : candidates.by_likelihood())
    sample.top.push_back({candidate.token, logprob(candidate.logit)});
}

}  // namespace puna
