#include "ggml_kvcached.h"

#include <map>
#include <mutex>

#if __has_include("ggml-backend-impl.h")
#include "ggml-backend-impl.h"
#else
#include "ggml_buffer.h"
#endif

namespace {

const char* get_name(ggml_backend_buffer_type_t) { return "KVCACHED"; }

void free_buffer(ggml_backend_buffer_t buffer) {
  kvcached_free(static_cast<kvcached_ctx_t>(buffer->buft->context), buffer->context);
}

// The CPU's kind of buffer, around our memory.
ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t size) {
  const auto ctx = static_cast<kvcached_ctx_t>(type->context);
  void* memory = kvcached_alloc(ctx, size);
  if (memory == nullptr) return nullptr;
  ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(memory, size);
  if (buffer == nullptr) {
    kvcached_free(ctx, memory);
    return nullptr;
  }
  buffer->iface.free_buffer = free_buffer;
  buffer->buft = type;
  return buffer;
}

size_t get_max_size(ggml_backend_buffer_type_t type) {
  return kvcached_get_limit(static_cast<kvcached_ctx_t>(type->context));
}

// Whether ggml's buffers are what the declarations say: they are internal to it, and may change.
bool are_declarations_right() {
  alignas(64) static char memory[64];
  ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(memory, sizeof memory);
  if (buffer == nullptr) return false;
  const bool are_right = buffer->buft == ggml_backend_buffer_get_type(buffer) && buffer->context == memory &&
                         buffer->size == sizeof memory && buffer->iface.free_buffer == nullptr;
  ggml_backend_buffer_free(buffer);
  return are_right;
}

}  // namespace

ggml_backend_buffer_type_t ggml_backend_kvcached_buffer_type(kvcached_ctx_t ctx) {
  static const bool is_compatible = are_declarations_right();
  if (!is_compatible) return nullptr;
  static std::mutex mutex;
  static std::map<kvcached_ctx_t, ggml_backend_buffer_type> types;  // never removed: ggml keeps pointers
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [entry, is_new] = types.try_emplace(ctx, *ggml_backend_cpu_buffer_type());
  if (is_new) {
    entry->second.context = ctx;
    entry->second.iface.get_name = get_name;
    entry->second.iface.alloc_buffer = alloc_buffer;
    entry->second.iface.get_max_size = get_max_size;
  }
  return &entry->second;
}
