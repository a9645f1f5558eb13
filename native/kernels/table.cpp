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
    .logit_maxima = logit_maxima,
    .logit_sums = logit_sums,
    .logit_moments = logit_moments,
    .logit_weights = logit_weights,
    .score_range = score_range,
    .select_logits = select_logits,
    .logit_histogram = logit_histogram,

    .dot_burst = dot_burst,
    .read_burst = read_burst,
};

}  // namespace puna::PUNA_ISA
