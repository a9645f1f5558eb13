"""Parts of the engine, measured by themselves in this process: kernels, sampler, tokenizing, quantizing."""
