"""The names of options that engines have, too: ours first, then theirs.

One idea has one name in options, tables, documents and arguments (docs/library.md#words): the batch
size is how many sequences are in one cache or run together, concurrency how many requests of the
context an engine runs at once, users how many requests at once all replicas serve.
"""

CONTEXT = ("--context", "--max-model-len", "--context-length", "--ctx-size", "-c")
DEVICE = ("--device", "--gpu")
KV_DTYPE = ("--kv-dtype", "--kv-cache-dtype")
TP = ("--tp", "--tensor-parallel-size")
PP = ("--pp", "--pipeline-parallel-size")
UTILISATION = ("--utilisation", "--gpu-memory-utilization", "--mem-fraction-static")
KV_MEMORY = ("--kv-memory", "--kv-cache-memory-bytes")
BLOCK_SIZE = ("--block-size", "--page-size")
GPU_LAYERS = ("-ngl", "--gpu-layers", "--n-gpu-layers")
BATCH_SIZE = ("--batch-size",)
SEQUENCES = ("--max-num-seqs", "--max-running-requests")
USERS = ("--target-users",)
