"""The names of options that engines have, too: ours first, then theirs."""

CONTEXT = ("--context", "--max-model-len", "--context-length", "--ctx-size", "-c")
DEVICE = ("--device", "--gpu")
KV_DTYPE = ("--kv-dtype", "--kv-cache-dtype")
TP = ("--tp", "--tensor-parallel-size")
PP = ("--pp", "--pipeline-parallel-size")
UTILISATION = ("--utilisation", "--gpu-memory-utilization", "--mem-fraction-static")
KV_MEMORY = ("--kv-memory", "--kv-cache-memory-bytes")
BLOCK_SIZE = ("--block-size", "--page-size")
GPU_LAYERS = ("-ngl", "--gpu-layers", "--n-gpu-layers")
