#include "sampler/sampler.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <string>

#include "base/error.h"
#include "bindings/bindings.h"
#include "executor/thread_pool.h"

namespace nb = nanobind;

namespace puna {
namespace {

using Logits = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Tokens = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void init(Sampler* self, float temperature, int64_t top_k, float top_p, float min_p, float typical_p,
          int64_t repeat_last_n, float repeat_penalty, float presence_penalty, float frequency_penalty,
          nb::int_ seed, const std::map<int64_t, float>& logit_bias, int64_t num_logprobs) {
  SamplingParams params = {temperature,
                           top_k,
                           top_p,
                           min_p,
                           typical_p,
                           repeat_last_n,
                           repeat_penalty,
                           presence_penalty,
                           frequency_penalty,
                           0,
                           {},
                           num_logprobs};
  params.seed = PyLong_AsUnsignedLongLongMask(seed.ptr());  // of any size and sign
  params.logit_bias.assign(logit_bias.begin(), logit_bias.end());
  new (self) Sampler(std::move(params));
}

struct SampleResult {
  std::vector<Sample> samples;
};

SampleResult sample(ThreadPool& pool, const Logits& logits,
                    const std::vector<std::shared_ptr<Sampler>>& samplers, const std::string& isa) {
  if (logits.shape(0) != samplers.size())
    throw Error("logits have " + std::to_string(logits.shape(0)) + " rows, but there are " +
                std::to_string(samplers.size()) + " samplers");
  std::vector<Sampler*> pointers;
  for (const auto& sampler : samplers) {
    if (sampler == nullptr) throw Error("a sampler is None");
    pointers.push_back(sampler.get());
  }
  const Kernels& kernels = select_kernels(isa.c_str());
  const nb::gil_scoped_release release;
  return {sample_batch(pool, kernels, logits.data(), static_cast<int64_t>(logits.shape(1)), pointers)};
}

template <typename T>
nb::object column(const SampleResult& result, T Sample::* member) {
  const size_t rows = result.samples.size();
  auto values = std::make_unique<T[]>(rows);
  for (size_t r = 0; r < rows; ++r) values[r] = result.samples[r].*member;
  nb::capsule owner(values.get(), [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(values.release(), {rows}, owner));
}

nb::list top_tokens(const SampleResult& result) {
  nb::list rows;
  for (const Sample& sample : result.samples) {
    nb::list row;
    for (const TokenLogprob& top : sample.top) row.append(nb::make_tuple(top.token, top.logprob));
    rows.append(row);
  }
  return rows;
}

}  // namespace

void bind_sampler(nb::module_& m) {
  nb::class_<Sampler>(m, "Sampler")
      .def("__init__", &init, nb::kw_only(), nb::arg("temperature"), nb::arg("top_k"), nb::arg("top_p"),
           nb::arg("min_p"), nb::arg("typical_p"), nb::arg("repeat_last_n"), nb::arg("repeat_penalty"),
           nb::arg("presence_penalty"), nb::arg("frequency_penalty"), nb::arg("seed"), nb::arg("logit_bias"),
           nb::arg("num_logprobs"))
      .def("accept", &Sampler::accept, nb::arg("token"))
      .def(
          "accept_many",
          [](Sampler& self, const Tokens& tokens) {
            for (size_t i = 0; i < tokens.size(); ++i) self.accept(tokens.data()[i]);
          },
          nb::arg("tokens").noconvert());
  nb::class_<SampleResult>(m, "SampleResult")
      .def_prop_ro("tokens", [](const SampleResult& result) { return column(result, &Sample::token); })
      .def_prop_ro("logprobs", [](const SampleResult& result) { return column(result, &Sample::logprob); })
      .def_prop_ro("top_tokens", &top_tokens);
  m.def("sample_batch", &sample, nb::arg("pool"), nb::arg("logits").noconvert(), nb::arg("samplers"),
        nb::arg("isa") = "auto");
}

}  // namespace puna
