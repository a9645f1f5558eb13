#include "kvcached/system_memory.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "kvcached/failure.h"

namespace puna::kvcached {
namespace {

constexpr int64_t kUnknown = int64_t{2} << 30;       // where the system does not say
constexpr int64_t kWorthAsking = int64_t{16} << 20;  // the question takes as long as committing some 100 KiB

// The number after a key in a file of "key number" lines; -1 if there is none.
int64_t number_after(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t number;
    if (words >> name >> number && name == key) return number;
  }
  return -1;
}

// -1 if the file has no number: "max", or no such file.
int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t number;
  return file >> number ? number : -1;
}

struct Files {
  const char *limit, *usage, *cached_key;
};

// What a control group has left.
int64_t left(const std::string& group, const Files& files) {
  const int64_t limit = number_in(group + files.limit), usage = number_in(group + files.usage);
  if (limit < 0 || usage < 0) return INT64_MAX;
  // Cached file pages count as used, but the system drops them when memory is asked for.
  const int64_t cached = number_after(group + "/memory.stat", files.cached_key);
  return std::max<int64_t>(limit - usage + std::max<int64_t>(cached, 0), 0);
}

// What the group and those above it have left. In a container the path may be the host's, which is not
// mounted: its parents end at the mount.
int64_t left_upward(const std::string& mount, std::string path, const Files& files) {
  int64_t bytes = left(mount, files);
  while (path.size() > 1) {
    bytes = std::min(bytes, left(mount + path, files));
    path.resize(path.rfind('/'));
  }
  return bytes;
}

int64_t left_in_control_groups() {
  std::ifstream file("/proc/self/cgroup");
  int64_t bytes = INT64_MAX;
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      path = line.substr(second + 1);
    if (controllers.empty())
      bytes = std::min(
          bytes, left_upward("/sys/fs/cgroup", path, {"/memory.max", "/memory.current", "inactive_file"}));
    else if (("," + controllers + ",").find(",memory,") != std::string::npos)
      bytes = std::min(
          bytes, left_upward("/sys/fs/cgroup/" + controllers, path,
                             {"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"}));
  }
  return bytes;
}

}  // namespace

int64_t available_memory() {
  const int64_t kilobytes = number_after("/proc/meminfo", "MemAvailable:");
  const int64_t bytes = std::min(kilobytes < 0 ? INT64_MAX : kilobytes * 1024, left_in_control_groups());
  return bytes == INT64_MAX ? kUnknown : bytes;
}

void check_available(int64_t bytes) {
  if (bytes < kWorthAsking) return;
  const int64_t available = available_memory();
  if (bytes > available)
    throw Failure(KVCACHED_ERR_NO_MEMORY, std::to_string(bytes) + " bytes are more than the " +
                                              std::to_string(available) + " that the system has available");
}

}  // namespace puna::kvcached
