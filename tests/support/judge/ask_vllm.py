"""What vLLM's own code makes of configs: blocks, tokens and concurrency of its K/V cache.

Runs in an environment that has vLLM (its CPU build will do), not in headcount's. Reads lines of
`{"id", "config", "settings": [{…}]}` from standard input; a setting has the names of vLLM's
`EngineArgs` and `available`, the bytes for the cache on each device. Prints for each line
`{"id", "answers": [{"max_model_len", "groups", "blocks", "block_size", "tokens", "concurrency"}]}`;
an answer is `{"error"}` where vLLM refuses. Each model is built without weights, as on an H100.

With --classes it prints `{"version", "classes": [[class, config], …]}`: the classes that generate
text, of types that transformers has, with the defaults of its classes of configs.
"""

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ |= {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",  # Triton may lack a driver then
}
os.environ.setdefault("VLLM_CACHE_ROOT", tempfile.mkdtemp())

import posed_device
import torch
import vllm
from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig
from transformers.models.auto import modeling_auto
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import (
    ensure_model_parallel_initialized,
    init_distributed_environment,
    parallel_state,
)
from vllm.distributed.kv_transfer.kv_connector.utils import (
    get_current_attn_backends,
)
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.model_executor.models import registry
from vllm.platforms import current_platform
from vllm.transformers_utils import config as hf_config
from vllm.usage.usage_lib import UsageContext
from vllm.utils.torch_utils import set_default_torch_dtype
from vllm.v1.attention.backends.utils import (
    get_supported_kv_cache_layouts,
    resolve_kv_cache_layout,
)
from vllm.v1.core.kv_cache_utils import (
    generate_scheduler_kv_cache_config,
    get_kv_cache_capacity,
    get_kv_cache_configs,
)
from vllm.v1.core.single_type_kv_cache_manager import (
    register_all_kvcache_specs,
)
from vllm.v1.kv_cache_interface import MambaSpec
from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec
from vllm.v1.worker.workspace import init_workspace_manager

_TABLES = (
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
)
posed_device.more_extensions("cuda")  # which others look for, too
init_workspace_manager(torch.device("meta"))
registry._run_in_subprocess = lambda call: call()


def answer(folder: str, available: int, **settings: Any) -> dict[str, Any]:
    """As EngineCore._initialize_kv_caches goes about it, of one rank of each stage."""
    tp = settings.get("tensor_parallel_size", 1)
    pp = settings.get("pipeline_parallel_size", 1)
    arguments = EngineArgs(
        model=folder,
        tokenizer=folder,
        skip_tokenizer_init=True,
        load_format="dummy",
        trust_remote_code=False,
        enforce_eager=True,
        distributed_executor_backend="mp",
        **settings,
    )
    config = arguments.create_engine_config(UsageContext.OPENAI_API_SERVER)
    with set_current_vllm_config(config):
        specs = []
        for stage in range(pp):
            with ranks(tp, pp, stage):
                build(config)
                if stage == 0:
                    current_platform.update_block_size_for_backend(config)
                    config.validate_block_size()
                specs.append(get_kv_cache_spec(config))
        register_all_kvcache_specs(config)
        backends = get_current_attn_backends(config)
        layouts = [layout.name for layout in get_supported_kv_cache_layouts(backends)]
        every = [spec for stage in specs for spec in stage.values()]
        resolve_kv_cache_layout(config, [layouts], every)
        found = get_kv_cache_configs(config, specs, [available] * pp) if every else []
        return described(config, found)


def described(config: Any, found: list[Any]) -> dict[str, Any]:
    known = {"max_model_len": config.model_config.max_model_len}
    if not found:
        return known | {"groups": 0, "blocks": 0, "tokens": 0, "concurrency": 0.0}
    whole = generate_scheduler_kv_cache_config(found)
    tokens, concurrency = get_kv_cache_capacity(config, whole)
    return known | {
        "groups": len(whole.kv_cache_groups),
        "blocks": whole.num_blocks,
        "block_size": min(tokens_of_blocks(whole), default=None),
        "tokens": tokens,
        "concurrency": concurrency,
    }


def tokens_of_blocks(config: Any) -> Iterator[int]:
    """Of the groups that keep tokens."""
    for group in config.kv_cache_groups:
        if not isinstance(group.kv_cache_spec, MambaSpec):
            yield group.kv_cache_spec.block_size


def build(config: Any) -> None:
    """Registers the layers of the current rank in `config`."""
    config.compilation_config.static_forward_context.clear()
    with (
        set_default_torch_dtype(config.model_config.dtype),
        torch.device("meta"),
        posed_device.OnMeta(),
    ):
        initialize_model(vllm_config=config)


@contextmanager
def ranks(tp: int, pp: int, stage: int) -> Iterator[None]:
    """The first rank of each layer's `tp` on one of `pp` stages; there are no others."""
    if not parallel_state.model_parallel_is_initialized():
        place = f"file://{tempfile.mktemp()}"
        with set_current_vllm_config(VllmConfig()):  # of no model: with groups for experts
            init_distributed_environment(1, 0, place, 0, "gloo")
            ensure_model_parallel_initialized(1, 1)
    sharing, staging = parallel_state.get_tp_group(), parallel_state.get_pp_group()
    sharing.world_size = tp
    staging.world_size, staging.rank_in_group = pp, stage
    staging.ranks = list(range(pp))
    try:
        yield
    finally:
        sharing.world_size = staging.world_size = 1
        staging.rank_in_group, staging.ranks = 0, [0]


def answers(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    read_by_a_plain_class(case["config"])
    with tempfile.TemporaryDirectory() as folder:
        config = {key: value for key, value in case["config"].items() if key != "auto_map"}
        (Path(folder) / "config.json").write_text(json.dumps(config), encoding="utf-8")
        for setting in case["settings"]:
            try:
                yield answer(folder, **setting)
            except Exception as error:  # whatever it refuses with is its answer
                traceback.print_exc()
                yield {"error": f"{type(error).__name__}: {error}".replace(folder, "FOLDER")}


# Of such a class that inherits another's, whose it is (configuration_mimo.py).
_RELATIVES = {"mimo": "qwen2"}


def read_by_a_plain_class(config: dict[str, Any]) -> None:
    """For a type whose class of configs lies beside its weights, in files of its own: one that has
    what config.json says, or is a relative's as its own is."""
    kind = config["model_type"]
    known = CONFIG_MAPPING.keys() | hf_config._CONFIG_REGISTRY.keys()
    if kind not in known:
        base = CONFIG_MAPPING[_RELATIVES[kind]] if kind in _RELATIVES else PretrainedConfig
        AutoConfig.register(kind, type(kind, (base,), {"model_type": kind}))


def classes() -> dict[str, Any]:
    """Those that generate text, of types that transformers has."""
    names = (*registry._TEXT_GENERATION_MODELS, *registry._MULTIMODAL_MODELS)
    types: dict[str, str] = {}
    for table in _TABLES:
        for kind, found in getattr(modeling_auto, table).items():
            for name in (found,) if isinstance(found, str) else found:
                types.setdefault(name, kind)
    known = [[name, default_config(name, types[name])] for name in sorted(names) if name in types]
    return {"version": vllm.__version__, "classes": known}


def default_config(name: str, kind: str) -> dict[str, Any]:
    """That of transformers' class: whole where vLLM would read it by a class of its own, whose
    defaults may be others."""
    own = {"model_type": kind, "architectures": [name]}
    if kind not in hf_config._CONFIG_REGISTRY:
        return own
    whole: dict[str, Any] = json.loads(CONFIG_MAPPING[kind]().to_json_string(use_diff=False))
    return whole | own


def main() -> None:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    if "--classes" in sys.argv:
        out.write(json.dumps(classes()) + "\n")
        return
    for line in sys.stdin:
        case = json.loads(line)
        out.write(json.dumps({"id": case["id"], "answers": list(answers(case))}) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
