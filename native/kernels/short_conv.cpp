// A causal convolution of each channel over the latest few tokens.
#include "kernels/activations.h"
#include "kernels/functions.h"

namespace puna::PUNA_ISA {
namespace {

constexpr int64_t kBlockChannels = 256;  // whose rows and weights stay in the first-level cache

// The channels of one call from `begin` on.
struct Channels {
  const ShortConvArgs& args;
  int64_t begin, count;

  // Of the token so many places before the next one: behind the state's rows come those of x.
  const float* row(int64_t token, const float* zeros) const {
    if (token >= 0) return args.x.of(token) + begin;
    return args.state_in == nullptr ? zeros : args.state_in + (args.size - 1 + token) * args.stride + begin;
  }

  void compute(int64_t token, const float* zeros) const {
    float* out = args.out.of(token) + begin;
    for (int64_t c = 0; c < count; c += kLanes) {
      const int64_t n = count - c < kLanes ? count - c : kLanes;
      f32x16 sum = args.bias == nullptr ? f32x16{} : load_partial(args.bias + begin + c, n);
      for (int64_t i = 0; i < args.size; ++i) {
        const float* x = row(token - (args.size - 1) + i, zeros) + c;
        sum = fma(load_partial(args.weight + i * args.stride + begin + c, n), load_partial(x, n), sum);
      }
      store_partial(out + c, args.has_silu ? silu(sum) : sum, n);
    }
  }

  // In ascending order, since a row may come from the same state.
  void keep(const float* zeros) const {
    for (int64_t i = 0; i < args.size - 1; ++i)
      std::memmove(args.state_out + i * args.stride + begin,
                   row(args.num_tokens - (args.size - 1) + i, zeros), (size_t)count * sizeof(float));
  }
};

}  // namespace

void short_conv(const ShortConvArgs& args) {
  const float zeros[kBlockChannels] = {};
  for (int64_t begin = 0; begin < args.channels; begin += kBlockChannels) {
    const int64_t left = args.channels - begin;
    const Channels channels{args, begin, left < kBlockChannels ? left : kBlockChannels};
    if (args.out.data != nullptr)
      for (int64_t token = 0; token < args.num_tokens; ++token) channels.compute(token, zeros);
    if (args.state_out != nullptr) channels.keep(zeros);
  }
}

}  // namespace puna::PUNA_ISA
