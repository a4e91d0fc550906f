"""What vLLM's own code makes of a cache that a draft shares: blocks, tokens and concurrency.

As ask_vllm.py, with the draft built beside the model on the last stage. Reads lines of
`{"config", "draft": config or null, "settings": {…}}` from standard input, where the settings' own
`speculative_config` has no model, and prints the answer of each.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import ask_vllm
import posed_device
import torch
from vllm.config import replace
from vllm.distributed import get_pp_group
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.utils.torch_utils import set_default_torch_dtype

_build = ask_vllm.build


def build(config: Any) -> None:
    """As load_model of vllm/v1/worker/gpu/model_runner.py and its speculators."""
    _build(config)
    speculative, stages = config.speculative_config, get_pp_group()
    if speculative is None or not speculative.uses_draft_kv_cache():
        return
    if stages.rank_in_group != stages.world_size - 1:
        return
    draft = speculative.draft_model_config
    with (
        set_default_torch_dtype(config.model_config.dtype),
        torch.device("meta"),
        posed_device.OnMeta(),
    ):
        if speculative.method == "draft_model":
            parallel = replace(speculative.draft_parallel_config, rank=0)
            own = replace(config, model_config=draft, parallel_config=parallel, quant_config=None)
            initialize_model(vllm_config=own, model_config=draft, prefix="draft_model")
        else:
            own = speculative.apply_draft_overrides(config)
            initialize_model(vllm_config=own, model_config=draft)


def main() -> None:
    ask_vllm.build = build
    for line in sys.stdin:
        case = json.loads(line)
        with tempfile.TemporaryDirectory() as folder:
            settings = case["settings"]
            if case["draft"] is not None:
                place = Path(folder, "draft-eagle3" if case["eagle"] else "draft")
                _write(place, case["draft"])
                settings["speculative_config"]["model"] = str(place)
            _write(Path(folder, "model"), case["config"])
            try:
                found = ask_vllm.answer(str(Path(folder, "model")), **settings)
            except Exception as error:  # whatever it refuses with is its answer
                found = {"error": f"{type(error).__name__}: {error}".replace(folder, "FOLDER")}
            print(json.dumps(found), flush=True)


def _write(folder: Path, config: dict[str, Any]) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))


if __name__ == "__main__":
    main()
