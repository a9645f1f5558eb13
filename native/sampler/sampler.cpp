#include "sampler/sampler.h"

#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"
#include "sampler/exp.h"
#include "sampler/random.h"

namespace puna {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void require(bool holds, const char* name, double value, const char* rule) {
  if (!holds) throw Error(std::string(name) + " is " + std::to_string(value) + ", but " + rule);
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
  require(params.repeat_penalty > 0, "repeat_penalty", params.repeat_penalty, "must be positive");
  require(params.repeat_last_n >= -1, "repeat_last_n", static_cast<double>(params.repeat_last_n),
          "must be -1 or more");
  require(params.num_logprobs >= -1, "num_logprobs", static_cast<double>(params.num_logprobs),
          "must be -1 or more");
  for (const auto& [token, bias] : params.logit_bias) {
    require(token >= 0, "a token of logit_bias", static_cast<double>(token), "must not be negative");
    require(bias < kInfinity, "a logit_bias", bias, "must be a number below infinity");
  }
}

bool has_penalties(const SamplingParams& params) {
  return params.repeat_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0;
}

float max_logit(const std::vector<Candidate>& candidates) {
  return std::min_element(candidates.begin(), candidates.end(), more_likely)->logit;
}

}  // namespace

Sampler::Sampler(SamplingParams params)
    : params_(std::move(params)), recent_(has_penalties(params_) ? params_.repeat_last_n : 0) {
  check(params_);
}

Sample Sampler::sample(std::span<const float> logits) const {
  const float max = checked_max(logits);
  Sample sample = {};
  if (changes_logits()) {
    const std::vector<float> own = changed(logits);
    sample.token = choose(own, checked_max(own));
  } else {
    sample.token = choose(logits, max);
  }
  add_logprobs(logits, max, sample);
  return sample;
}

void Sampler::commit(const Sample& sample) {
  ++num_drawn_;
  recent_.add(sample.token);
}

bool Sampler::changes_logits() const { return !params_.logit_bias.empty() || !recent_.counts().empty(); }

std::vector<float> Sampler::changed(std::span<const float> logits) const {
  std::vector<float> out(logits.begin(), logits.end());
  const auto in_vocabulary = [&](int64_t token) {
    return token >= 0 && static_cast<size_t>(token) < out.size();
  };
  for (const auto& [token, bias] : params_.logit_bias)
    if (in_vocabulary(token)) out[static_cast<size_t>(token)] += bias;
  for (const auto& [token, count] : recent_.counts()) {
    if (!in_vocabulary(token)) continue;
    float& logit = out[static_cast<size_t>(token)];
    // Dividing a negative logit would make its token likelier.
    logit = logit > 0 ? logit / params_.repeat_penalty : logit * params_.repeat_penalty;
    logit -= static_cast<float>(count) * params_.frequency_penalty + params_.presence_penalty;
  }
  return out;
}

bool Sampler::is_filtered() const {
  return params_.top_k > 0 || params_.typical_p < 1 || params_.top_p < 1 || params_.min_p > 0;
}

int32_t Sampler::choose(std::span<const float> logits, float max) const {
  if (params_.temperature <= 0)
    return static_cast<int32_t>(std::find(logits.begin(), logits.end(), max) - logits.begin());
  return is_filtered() ? draw(filtered(logits, max)) : draw_from_all(logits, max);
}

std::vector<Candidate> Sampler::filtered(std::span<const float> logits, float max) const {
  const bool nucleus = params_.top_p < 1 || params_.min_p > 0;
  const bool typical = params_.typical_p < 1;
  std::vector<Candidate> candidates;
  if (params_.top_k > 0) {
    candidates = most_likely(logits, static_cast<size_t>(params_.top_k));
  } else if (typical) {
    candidates = at_least(logits, -kInfinity);
  } else {  // straight from the logits, without a copy of the whole vocabulary
    const double total = sum_exp(logits, max, 1);
    candidates = at_least(logits, nucleus_bound(max, total, logits.size()));
    keep_nucleus(candidates, max, total);
    return candidates;
  }
  if (typical) keep_typical(candidates);
  if (nucleus) {
    const float kept_max = max_logit(candidates);
    keep_nucleus(candidates, kept_max, sum_exp(candidates, kept_max));
  }
  return candidates;
}

// Keeps the tokens whose surprise, -log p, is nearest to its expectation, the entropy (Meister et al., 2022).
// Both hold the same log of the sum, so logits and their mean serve as well.
void Sampler::keep_typical(std::vector<Candidate>& candidates) const {
  const float max = max_logit(candidates);
  double total = 0, weighted = 0;
  for (const Candidate& candidate : candidates) {
    const double weight = exp_nonpositive(candidate.logit - max);
    total += weight;
    weighted += weight * (candidate.logit - max);
  }
  const double mean = weighted / total;
  const auto deviation = [&](const Candidate& c) {
    return std::abs(static_cast<double>(c.logit - max) - mean);
  };
  const auto before = [&](const Candidate& a, const Candidate& b) {
    const double x = deviation(a), y = deviation(b);
    return x < y || (x == y && more_likely(a, b));
  };
  double mass = 0;
  keep_until(candidates, before, [&](const Candidate& candidate) {
    mass += exp_nonpositive(candidate.logit - max);
    return mass > params_.typical_p * total;
  });
}

// A logit below which neither top-p nor min-p keeps a token. The tokens whose probability is below
// (1 - top_p) / count have less than 1 - top_p together, so the others reach top_p without them.
float Sampler::nucleus_bound(float max, double total, size_t count) const {
  constexpr double kMargin = 1e-3;  // against rounding: what is kept must be decided by keep_nucleus alone
  const double top_p = std::clamp(params_.top_p, 0.0f, 1.0f);
  const double by_top_p = std::log((1 - top_p) * total / static_cast<double>(count));
  const double by_min_p = std::log(std::clamp(params_.min_p, 0.0f, 1.0f));
  return max + static_cast<float>(std::max(by_top_p, by_min_p) - kMargin);
}

// top-p, then min-p: each keeps a prefix of the candidates in order, so min-p may as well go first, with the
// sum of all (total) kept for top-p.
void Sampler::keep_nucleus(std::vector<Candidate>& candidates, float max, double total) const {
  if (params_.min_p > 0) {
    const float lowest =
        max + static_cast<float>(std::log(static_cast<double>(std::min(params_.min_p, 1.0f))));
    std::erase_if(candidates, [&](const Candidate& candidate) { return candidate.logit < lowest; });
  }
  if (params_.top_p >= 1) return;
  double mass = 0;
  keep_until(candidates, more_likely, [&](const Candidate& candidate) {
    mass += exp_nonpositive(candidate.logit - max);
    return mass >= params_.top_p * total;
  });
}

int32_t Sampler::draw(const std::vector<Candidate>& candidates) const {
  const float max = max_logit(candidates);
  std::vector<double> mass(candidates.size());  // of each candidate and all before it
  double total = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    total += exp_nonpositive((candidates[i].logit - max) / params_.temperature);
    mass[i] = total;
  }
  // Below total even after rounding, so there is a candidate to find.
  const double target = uniform(params_.seed, num_drawn_) * total;
  const auto drawn = std::upper_bound(mass.begin(), mass.end(), target);
  return candidates[static_cast<size_t>(drawn - mass.begin())].token;
}

// Without a filter, nothing as long as the vocabulary is written: first a chunk of it is drawn, then a token.
int32_t Sampler::draw_from_all(std::span<const float> logits, float max) const {
  constexpr size_t kChunk = 1024;
  std::vector<double> mass;  // of each chunk and all before it
  double total = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kChunk) {
    const size_t size = std::min(kChunk, logits.size() - begin);
    total += sum_exp(logits.subspan(begin, size), max, params_.temperature);
    mass.push_back(total);
  }
  const double target = uniform(params_.seed, num_drawn_) * total;
  const auto chunk = static_cast<size_t>(std::upper_bound(mass.begin(), mass.end(), target) - mass.begin());
  double rest = chunk == 0 ? target : target - mass[chunk - 1];
  size_t drawn = 0;  // the last one with a weight, should rounding leave a rest
  for (size_t i = chunk * kChunk; i < std::min((chunk + 1) * kChunk, logits.size()) && rest >= 0; ++i) {
    const float weight = exp_nonpositive((logits[i] - max) / params_.temperature);
    if (weight > 0) drawn = i;
    rest -= weight;
  }
  return static_cast<int32_t>(drawn);
}

void Sampler::add_logprobs(std::span<const float> logits, float max, Sample& sample) const {
  sample.logprob = std::numeric_limits<float>::quiet_NaN();
  if (params_.num_logprobs < 0) return;
  const double log_total = std::log(sum_exp(logits, max, 1));
  const auto logprob = [&](float logit) { return static_cast<float>(logit - max - log_total); };
  sample.logprob = logprob(logits[static_cast<size_t>(sample.token)]);
  for (const Candidate& candidate : most_likely(logits, static_cast<size_t>(params_.num_logprobs)))
    sample.top.push_back({candidate.token, logprob(candidate.logit)});
}

std::vector<Sample> sample_batch(ThreadPool& pool, const float* logits, int64_t vocab_size,
                                 std::span<Sampler* const> samplers) {
  std::vector<Sample> samples(samplers.size());
  const auto sample_row = [&](int64_t row) {
    const auto r = static_cast<size_t>(row);
    try {
      samples[r] = samplers[r]->sample({logits + row * vocab_size, static_cast<size_t>(vocab_size)});
    } catch (const Error& error) {
      throw Error("row " + std::to_string(row) + ": " + error.what());
    }
  };
  if (samplers.size() == 1) {
    sample_row(0);  // nothing to share: other threads may sleep on
  } else {
    pool.parallel_for(static_cast<int64_t>(samplers.size()), sample_row);
  }
  for (size_t r = 0; r < samplers.size(); ++r) samplers[r]->commit(samples[r]);
  return samples;
}

}  // namespace puna
