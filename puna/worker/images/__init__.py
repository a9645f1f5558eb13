"""The worker that makes PNGs of images which llama.cpp does not read: a process for each request, caged."""
