#include "kernels/functions.h"

namespace puna::PUNA_ISA {

const Kernels kKernels = {
    .isa = PUNA_ISA_NAME,
    .quantized_row_bytes = quantized_row_bytes,
    .quantize_row = quantize_row,
    .linear = linear,
    .store_kv = store_kv,
    .attention = attention,
    .rms_norm = rms_norm,
    .rope_normal = rope_normal,
    .rope_neox = rope_neox,
    .glu = glu,
    .add = add,
    .mul = mul,
    .scale = scale,
    .softcap = softcap,
    .dot_burst = dot_burst,
    .read_burst = read_burst,
};

}  // namespace puna::PUNA_ISA
