#include "gguf/bus_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <string>

#include "base/error.h"

namespace puna {
namespace {

// The handler can take no lock. It may see a slot that is just being changed for another mapping: the version
// is then odd, or another one afterwards. The slot of the mapping that raised the signal is at rest.
struct Slot {
  std::atomic<uint32_t> version;
  std::atomic<uintptr_t> begin;  // 0: free
  std::atomic<uintptr_t> end;
  std::atomic<bool> is_damaged;

  void set(uintptr_t new_begin, uintptr_t new_end) {
    ++version;
    begin = new_begin;
    end = new_end;
    is_damaged = false;
    ++version;
  }
};

std::array<Slot, 4096> slots;
std::mutex slots_mutex;  // of those who write
struct sigaction previous_action;
uintptr_t page_bytes;

// From the page of `address` on, the mapping reads as zeros. False if it is none of ours.
bool zero_rest(uintptr_t address) {
  for (Slot& slot : slots) {
    const uint32_t version = slot.version;
    const uintptr_t begin = slot.begin, end = slot.end;
    if (version % 2 != 0 || slot.version != version) continue;
    if (address < begin || address >= end) continue;
    const uintptr_t page = address / page_bytes * page_bytes;
    void* zeros = mmap(reinterpret_cast<void*>(page), end - page, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    slot.is_damaged = true;
    return zeros != MAP_FAILED;
  }
  return false;
}

void on_bus_error(int signal, siginfo_t* info, void*) {
  const int saved_errno = errno;
  const bool is_fault = info->si_code > 0;  // not sent by kill()
  if (!is_fault || !zero_rest(reinterpret_cast<uintptr_t>(info->si_addr))) {
    sigaction(signal, &previous_action, nullptr);  // a fault comes again at once
    if (!is_fault) raise(signal);
  }
  errno = saved_errno;
}

}  // namespace

GuardedRange::GuardedRange(const void* begin, size_t size) {
  const auto address = reinterpret_cast<uintptr_t>(begin);
  const std::lock_guard<std::mutex> lock(slots_mutex);
  for (slot_ = 0; slot_ < slots.size(); ++slot_) {
    if (slots[slot_].begin != 0) continue;
    slots[slot_].set(address, address + size);
    return;
  }
  throw Error("more than " + std::to_string(slots.size()) + " files are mapped");
}

GuardedRange::~GuardedRange() {
  const std::lock_guard<std::mutex> lock(slots_mutex);
  slots[slot_].set(0, 0);
}

bool GuardedRange::is_damaged() const { return slots[slot_].is_damaged.load(std::memory_order_relaxed); }

void catch_bus_errors() {
  static std::once_flag once;
  std::call_once(once, [] {
    page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, &action, &previous_action) != 0)
      throw Error(std::string("cannot catch bus errors: ") + std::strerror(errno));
  });
}

}  // namespace puna
