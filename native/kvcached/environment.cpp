#include "kvcached/environment.h"

#include <cctype>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

#include "kvcached/failure.h"

namespace puna::kvcached {
namespace {

constexpr const char* kVariable = "OLLAMA_KVCACHED_MEMORY_GB";
constexpr double kGib = 1 << 30;
constexpr int64_t kLeastBytes = 1 << 20;  // these two as for the daemon
constexpr int64_t kMostBytes = int64_t{64} << 40;

// Without blanks and quotes around it, and without what only separates digits; in lower case.
std::string simplified(std::string_view text) {
  constexpr const char* kAround = " \t\r\n\"'";
  const size_t first = text.find_first_not_of(kAround);
  if (first == std::string_view::npos) return "";
  std::string simple;
  for (const char c : text.substr(first, text.find_last_not_of(kAround) + 1 - first))
    if (c != '_' && c != ',') simple += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return simple;
}

// Bytes of a unit; 0 if there is no such unit.
double bytes_of(std::string_view unit) {
  if (unit.empty()) return kGib;
  if (unit == "b") return 1;
  constexpr std::string_view kPrefixes = "kmgt";
  const size_t power = kPrefixes.find(unit.front());
  const std::string_view rest = unit.substr(1);
  if (power == std::string_view::npos || (!rest.empty() && rest != "b" && rest != "ib")) return 0;
  return static_cast<double>(int64_t{1} << (10 * (power + 1)));
}

// 0 if it is no size.
double parse(const std::string& text) {
  double number = 0;
  const char *begin = text.data(), *end = begin + text.size();
  if (begin == end || std::isdigit(static_cast<unsigned char>(*begin)) == 0) return 0;
  const auto [rest, error] = std::from_chars(begin, end, number, std::chars_format::fixed);
  if (error != std::errc{} || rest[-1] == '.') return 0;
  std::string_view unit(rest, static_cast<size_t>(end - rest));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  return number * bytes_of(unit);
}

}  // namespace

std::optional<int64_t> limit_from_environment() {
  const char* given = std::getenv(kVariable);
  const std::string text = given == nullptr ? "" : simplified(given);
  if (text.empty()) return std::nullopt;
  const double bytes = parse(text);
  if (bytes < 1 || bytes > static_cast<double>(kMostBytes))
    throw Failure(KVCACHED_ERR_INVALID_ARGUMENT,
                  std::string(kVariable) + " is no limit (try 12GiB): \"" + given + "\"");
  const auto limit = static_cast<int64_t>(bytes);
  if (limit < kLeastBytes)
    throw Failure(KVCACHED_ERR_INVALID_ARGUMENT, std::string(kVariable) + ": \"" + given + "\" is " +
                                                     std::to_string(limit) +
                                                     " bytes, less than any model can use (try 4GB)");
  return limit;
}

}  // namespace puna::kvcached
