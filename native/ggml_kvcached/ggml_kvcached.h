// A ggml buffer type whose memory comes from kvcached: under the limit of a context, released when the buffer
// is freed. It is host memory, so the CPU backend computes on its tensors as on its own.
//
// Compile ggml_kvcached.cpp with ggml or llama.cpp, with their include directories and the flags of
// `pkg-config kvcached`. ggml/src belongs to the include directories where there is one: it has the header
// that declares buffer types.
#pragma once

#include "ggml-backend.h"
#include "kvcached.h"

#ifdef __cplusplus
extern "C" {
#endif

// The buffer type of a context, the same one for each call. Buffers are to be freed before the context is
// shut down. Allocating a buffer returns NULL if it does not fit under the limit; kvcached_last_error() says
// so. NULL if ggml was built with other declarations than this was compiled with.
ggml_backend_buffer_type_t ggml_backend_kvcached_buffer_type(kvcached_ctx_t ctx);

#ifdef __cplusplus
}
#endif
