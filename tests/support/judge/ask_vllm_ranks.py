"""What vLLM's own classes put on one rank: parameters of a model, of its layers that draft, and
buffers of LoRA adapters.

Runs in an environment that has vLLM (its CPU build will do), not in headcount's. Reads lines of
`{"config", "tp", "dp", "expert_parallel", "redundant", "lora": {…}, "drafts"}` from standard input,
all but the config of them optional, and prints for each `{"parameters", "shared",
"lora_bytes"}`, or `{"error"}`: `shared` are those of embedding and head, which a draft takes
from the model. `lora` are max_loras, max_lora_rank and fully_sharded_loras. Built on the meta
device; the groups of ranks are told how many they are. A mixture of experts comes first, or no
group of ranks for experts is made.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ |= {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",  # Triton may lack a driver then
}
os.environ.setdefault("VLLM_CACHE_ROOT", tempfile.mkdtemp())

import torch
import torchvision_operators  # noqa: F401
from torch.fx.experimental import _config as fx_config
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import (
    ensure_model_parallel_initialized,
    init_distributed_environment,
    parallel_state,
)
from vllm.engine.arg_utils import EngineArgs
from vllm.lora.layers import BaseLayerWithLoRA
from vllm.lora.layers.fused_moe import FusedMoE3DWithLoRA, FusedMoEWithLoRA
from vllm.lora.model_manager import LoRAModelManager
from vllm.model_executor.layers.fused_moe import expert_map_manager
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.model_executor.models import registry

registry._run_in_subprocess = lambda call: call()
fx_config.meta_nonzero_assume_all_nonzero = True


def _on_the_host(function: Any) -> Any:
    def called(*args: Any, **kwargs: Any) -> Any:
        with torch.device("cpu"):
            return function(*args, **kwargs)

    return called


expert_map_manager.determine_expert_map = _on_the_host(expert_map_manager.determine_expert_map)


def _of_experts(self: Any, base_layer: Any) -> None:
    """What the buffers' sizes follow from; kernels are not looked for."""
    BaseLayerWithLoRA.__init__(self)
    self.base_layer, self.moe_config = base_layer, base_layer.moe_config
    self._shared_experts = base_layer._shared_experts
    parallel = self.moe_config.moe_parallel_config
    self.tp_size, self.tp_rank = parallel.tp_size, parallel.tp_rank
    self.device, self._enable_aux_cuda_stream = torch.device("meta"), False
    grouped = isinstance(self, FusedMoE3DWithLoRA)
    self._w13_slices = 2 if self.moe_config.is_act_and_mul and not grouped else 1
    self.enable_moe_shared_loras = False
    self.n_slices = self.local_num_experts * (self._w13_slices + 1)


for _layer in (FusedMoEWithLoRA, FusedMoE3DWithLoRA):
    _layer.__init__ = _of_experts
    _layer.set_mapping = lambda self, wrapper: None


def answer(folder: str, case: dict[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        **{"model": folder, "tokenizer": folder, "skip_tokenizer_init": True},
        **{"load_format": "dummy", "enforce_eager": True, "max_model_len": 1024},
        "enable_expert_parallel": case.get("expert_parallel", False),
        **({"enable_lora": True, **case["lora"]} if "lora" in case else {}),
    }
    if case.get("drafts"):
        arguments["speculative_config"] = {"method": "mtp", "num_speculative_tokens": 1}
    config = EngineArgs(**arguments).create_engine_config()
    with set_current_vllm_config(config):
        _pose(config, case)
        draft = config.speculative_config and config.speculative_config.draft_model_config
        with torch.device("meta"):
            more = {"model_config": draft} if draft else {}
            model = initialize_model(vllm_config=config, **more)
        found = {
            "parameters": sum(p.numel() for p in model.parameters()),
            "shared": sum(p.numel() for name, p in model.named_parameters() if _is_shared(name)),
        }
        if "lora" in case:
            found["lora_bytes"] = _lora_bytes(model, config)
        return found


def _pose(config: VllmConfig, case: dict[str, Any]) -> None:
    """The groups of ranks, as large as the case has them; this process is the first of each."""
    if not parallel_state.model_parallel_is_initialized():
        with tempfile.NamedTemporaryFile() as file:
            init_distributed_environment(1, 0, f"file://{file.name}.store", 0, "gloo")
        ensure_model_parallel_initialized(1, 1)
    tp, dp, redundant = case.get("tp", 1), case.get("dp", 1), case.get("redundant", 0)
    parallel_state._TP.world_size = tp
    parallel_state._DP.world_size = dp
    if parallel_state._EP is not None:
        parallel_state._EP.world_size = tp * dp
    parallel = config.parallel_config
    parallel.tensor_parallel_size, parallel.data_parallel_size = tp, dp
    parallel.data_parallel_rank = 0
    if redundant:
        parallel.enable_eplb = True
        parallel.eplb_config.num_redundant_experts = redundant


def _is_shared(name: str) -> bool:
    return any(part in name for part in ("embed_tokens", "lm_head", "shared_head.head"))


def _lora_bytes(model: Any, config: VllmConfig) -> int:
    vocabulary, cpu = config.model_config.get_vocab_size(), torch.device("cpu")
    LoRAModelManager(model, 8, 2048, vocabulary, config.lora_config, cpu, config)
    buffers = {
        id(tensor): tensor.numel() * tensor.element_size()
        for module in model.modules()
        if isinstance(module, BaseLayerWithLoRA)
        for name, value in vars(module).items()
        if "_stacked" in name and not name.endswith("_2d")
        for tensor in _tensors(value)
        if tensor._base is None
    }
    return sum(buffers.values())


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for each in value for t in _tensors(each)] if isinstance(value, (list, tuple)) else []


def main() -> None:
    for line in sys.stdin:
        case = json.loads(line)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "config.json").write_text(json.dumps(case["config"]))
            try:
                print(json.dumps(answer(folder, case)), flush=True)
            except Exception as error:  # whatever it refuses with is its answer
                print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)


if __name__ == "__main__":
    main()
