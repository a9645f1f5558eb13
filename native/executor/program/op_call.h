// An op of a graph, as the program builder is told of it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace puna {

using Attribute = std::variant<int64_t, double, std::string, std::vector<float>>;

// The getters throw Error, naming op and attribute, where something is missing or of another kind.
struct OpCall {
  std::string name;
  std::vector<int> inputs, outputs;                 // buffers
  std::vector<std::optional<std::string>> tensors;  // names in the model's file
  std::map<std::string, Attribute> attributes;

  void expect(size_t num_inputs, size_t num_outputs, size_t num_tensors) const;
  const std::string& tensor(size_t index) const;

  int64_t integer(const std::string& key, int64_t low, int64_t high) const;
  float number(const std::string& key) const;  // finite
  const std::string& text(const std::string& key) const;
  const std::vector<float>& floats(const std::string& key) const;

 private:
  template <typename T>
  const T& get(const std::string& key, const char* kind) const;
};

}  // namespace puna
