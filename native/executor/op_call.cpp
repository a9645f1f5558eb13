#include "executor/op_call.h"

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

const Attribute& OpCall::at(const std::string& key) const {
  const auto found = attributes.find(key);
  require(found != attributes.end(), name + " needs the attribute " + key);
  return found->second;
}

int64_t OpCall::integer(const std::string& key, int64_t low, int64_t high) const {
  const auto* value = std::get_if<int64_t>(&at(key));
  require(value != nullptr, name + "." + key + " is not a whole number");
  require_range((name + "." + key).c_str(), *value, low, high);
  return *value;
}

float OpCall::number(const std::string& key) const {
  const Attribute& attribute = at(key);
  const auto* whole = std::get_if<int64_t>(&attribute);
  const auto* real = std::get_if<double>(&attribute);
  const auto value = static_cast<float>(real != nullptr    ? *real
                                        : whole != nullptr ? static_cast<double>(*whole)
                                                           : NAN);
  require(std::isfinite(value), name + "." + key + " is not a finite number");
  return value;
}

const std::string& OpCall::text(const std::string& key) const {
  const auto* value = std::get_if<std::string>(&at(key));
  require(value != nullptr, name + "." + key + " is not a string");
  return *value;
}

const std::vector<float>& OpCall::floats(const std::string& key) const {
  const auto* value = std::get_if<std::vector<float>>(&at(key));
  require(value != nullptr, name + "." + key + " is not an array");
  return *value;
}

}  // namespace puna
