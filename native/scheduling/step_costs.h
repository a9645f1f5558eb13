// How long a model's steps take, learned while it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace puna {

// Seconds by number of tokens: moving averages in buckets, with straight lines between them.
//
// What has not been seen for long is forgotten, but for the shortest and the longest steps: an average that
// was held up once would else be believed for ever, if it is the reason that no more such steps are made.
class StepCosts {
 public:
  void observe(int64_t num_tokens, double seconds);

  // Of the steps seen; infinite if there are none. Of shorter ones it is only known that they take no longer.
  double fewest_tokens() const;

  // Whether steps of about that size were seen, not too long ago.
  bool has_seen(int64_t num_tokens) const;

  // Seconds of a step, beyond what was seen in proportion; nothing while nothing is known.
  std::optional<double> estimate(int64_t num_tokens) const;

 private:
  struct Average {
    size_t bucket;
    double num_tokens;
    double seconds;
    int64_t seen;  // when, in observations
  };

  std::vector<Average>::iterator find(size_t bucket);
  void forget();

  std::vector<Average> averages_;  // of the buckets in use, ascending
  int64_t num_observed_ = 0;
};

}  // namespace puna
