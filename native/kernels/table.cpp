#include "kernels/functions.h"

namespace puna::PUNA_ISA {

const Kernels kKernels = {
    .isa = PUNA_ISA_NAME,
    .quantized_row_bytes = quantized_row_bytes,
    .quantize_row = quantize_row,
    .linear = linear,
    .store_kv = store_kv,
    .attention = attention,
    .attention_segments = attention_segments,
    .combine_segments = combine_segments,
    .rms_norm = rms_norm,
    .rope_normal = rope_normal,
    .rope_neox = rope_neox,
    .glu = glu,
    .add = add,
    .mul = mul,
    .scale = scale,
    .softcap = softcap,
};

}  // namespace puna::PUNA_ISA
