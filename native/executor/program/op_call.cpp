#include "executor/program/op_call.h"

#include <cmath>

#include "executor/check.h"

namespace puna {

void OpCall::expect(size_t num_inputs, size_t num_outputs, size_t num_tensors) const {
  const auto check = [this](const char* what, size_t expected, size_t actual) {
    require(expected == actual,
            name + " needs " + std::to_string(expected) + " " + what + ", not " + std::to_string(actual));
  };
  check("inputs", num_inputs, inputs.size());
  check("outputs", num_outputs, outputs.size());
  check("tensors", num_tensors, tensors.size());
}

const std::string& OpCall::tensor(size_t index) const {
  require(index < tensors.size() && tensors[index].has_value(), name + " names too few tensors");
  return *tensors[index];
}

template <typename T>
const T& OpCall::get(const std::string& key, const char* kind) const {
  const auto found = attributes.find(key);
  require(found != attributes.end(), name + " needs the attribute " + key);
  const T* value = std::get_if<T>(&found->second);
  require(value != nullptr, name + "." + key + " is not " + kind);
  return *value;
}

int64_t OpCall::integer(const std::string& key, int64_t low, int64_t high) const {
  const auto value = get<int64_t>(key, "a whole number");
  require_range((name + "." + key).c_str(), value, low, high);
  return value;
}

float OpCall::number(const std::string& key) const {
  const auto value = static_cast<float>(get<double>(key, "a float"));
  require(std::isfinite(value), name + "." + key + " is not a finite number");
  return value;
}

const std::string& OpCall::text(const std::string& key) const { return get<std::string>(key, "a string"); }

const std::vector<float>& OpCall::floats(const std::string& key) const {
  return get<std::vector<float>>(key, "an array");
}

}  // namespace puna
