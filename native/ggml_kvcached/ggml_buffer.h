// What ggml's internal header ggml-backend-impl.h declares of buffers, as of its API version 2, for builds
// with nothing but ggml's installed headers. Functions that we only pass on have no parameters here.
#pragma once

#include "ggml-backend.h"

struct ggml_backend_buffer_type_i {
  const char* (*get_name)(ggml_backend_buffer_type_t);
  ggml_backend_buffer_t (*alloc_buffer)(ggml_backend_buffer_type_t, size_t);
  size_t (*get_alignment)(ggml_backend_buffer_type_t);
  size_t (*get_max_size)(ggml_backend_buffer_type_t);
  void (*get_alloc_size)();
  bool (*is_host)(ggml_backend_buffer_type_t);
};

struct ggml_backend_buffer_type {
  ggml_backend_buffer_type_i iface;
  ggml_backend_dev_t device;
  void* context;
};

struct ggml_backend_buffer_i {
  void (*free_buffer)(ggml_backend_buffer_t);
  void* (*get_base)(ggml_backend_buffer_t);
  void (*init_tensor)();
  void (*memset_tensor)();
  void (*set_tensor)();
  void (*get_tensor)();
  void (*set_tensor_2d)();
  void (*get_tensor_2d)();
  void (*cpy_tensor)();
  void (*clear)();
  void (*reset)();
};

struct ggml_backend_buffer {
  ggml_backend_buffer_i iface;
  ggml_backend_buffer_type_t buft;
  void* context;
  size_t size;
  ggml_backend_buffer_usage usage;
};
