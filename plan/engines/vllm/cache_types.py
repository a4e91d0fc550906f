"""The names that vLLM has for the types of its cache."""

from ..cache_names import CacheNames

# CacheDType of vllm/config/cache.py (vllm/config.py before 0.10), as it stands in 0.8.5, 0.9.0.1,
# 0.9.2, 0.10.2 and each minor release from 0.11 to 0.32.
CACHES = CacheNames(
    engine="vLLM",
    option="--kv-cache-dtype",
    since={
        **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2"), ()),
        **{"fp8_inc": (0, 10, 2), "bfloat16": (0, 11), "fp8_ds_mla": (0, 12), "float16": (0, 18)},
        **dict.fromkeys(("turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc"), (0, 20)),
        **dict.fromkeys(("turboquant_3bit_nc", "int8_per_token_head"), (0, 20)),
        **dict.fromkeys(("fp8_per_token_head", "nvfp4"), (0, 20)),
        **{"int4_per_token_head": (0, 25), "nvfp4_4over6": (0, 28), "nvfp4_ds_mla": (0, 30)},
        "ultraquant_4bit": (0, 32),
    },
)
