"""Sound inputs of each format, from which others are made."""

import json
import tempfile
from functools import cache
from pathlib import Path

from checkpoints import LLAMA_CONFIG, header_bytes, llama_shapes, write_safetensors, write_sharded
from gguf_files import LLAMA, gguf_bytes, key_values, llama_tensors
from golden_files import tiny_configs
from headcount.convert.plan.existing import DIGEST
from headcount.convert.stream.journal import FinishedFile, Journal
from pickles import legacy_bytes, state_dict, write_bin
from start_up_logs import RECORDS, vllm_log

SHAPES = {"a.weight": (2, 3), "b": (4,), "c": ()}
_SGLANG = b"""server_args=ServerArgs(model_path='Qwen/Qwen3-8B', tp_size=1, context_length=4096)
Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=60 GB, mem usage=15.3 GB.
KV Cache is allocated. dtype: torch.bfloat16, #tokens: 400000, K size: 27.4 GB, V size: 27.4 GB
max_total_num_tokens=400000, chunked_prefill_size=8192, context_len=4096
"""


def _json(*documents: object) -> list[bytes]:
    return [json.dumps(document).encode() for document in documents]


def configs() -> list[bytes]:
    """A tiny config of every type."""
    return _json(*tiny_configs().values())


@cache
def _written() -> dict[str, bytes]:
    """The bytes of small files in the formats of weights."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_sharded(folder, LLAMA_CONFIG, llama_shapes())
        write_safetensors(folder / "a.safetensors", SHAPES)
        write_bin(folder / "a.bin", SHAPES)
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def indices() -> list[bytes]:
    return [_written()["model.safetensors.index.json"]]


def safetensors() -> list[bytes]:
    whole = _written()["a.safetensors"]
    return [whole, header_bytes({}), header_bytes({"__metadata__": {"format": "pt"}})]


def shapes() -> list[bytes]:
    """The tensors of a Llama checkpoint: their names and shapes as JSON."""
    return _json(llama_shapes())


def ggufs() -> list[bytes]:
    other = key_values("gemma3n", attention__shared_kv_layers=2, attention__sliding_window=8)
    return [
        gguf_bytes(LLAMA, llama_tensors(layers=1)),
        gguf_bytes(LLAMA, {}),
        gguf_bytes(other, {}),
    ]


def gguf_keys() -> list[bytes]:
    return _json(
        {key: value for key, value in LLAMA.items() if not isinstance(value, list)},
        key_values("gemma3n", attention__shared_kv_layers=2, attention__sliding_window=8),
        key_values(
            "deepseek2",
            attention__kv_lora_rank=8,
            attention__key_length=16,
            attention__value_length=8,
            rope__dimension_count=8,
        ),
        key_values("jamba", ssm__state_size=4, ssm__inner_size=8, ssm__conv_kernel=4),
    )


def pickles() -> list[bytes]:
    return [_written()["a.bin"], legacy_bytes(state_dict(SHAPES)), state_dict(SHAPES)]


def logs() -> list[bytes]:
    named = [record for record in RECORDS if record["catalogue"] and record.get("kv_tokens")]
    return [_SGLANG, *(vllm_log(record).encode() for record in named)]


def additions() -> list[bytes]:
    return [
        b'{"method": "mtp", "num_speculative_tokens": 2}',
        b'{"model": "org/draft-eagle3", "num_speculative_tokens": 3}',
        b'{"image": 2, "video": {"count": 0}}',
        b'{"max_pixels": 802816, "size": {"longest_edge": 1003520}}',
    ]


def prices() -> list[bytes]:
    return [
        b"name,price\nh100,2.49\nMI300X, 3\n",
        b"\xef\xbb\xbfh200,3.79\r\n\r\nb200,5.5",
        b'{"h100": 2.49, "l4": "0.7"}',
        b'[{"name": "NVIDIA H100 SXM5 80GB", "price": 2}]',
    ]


def options() -> list[bytes]:
    return [
        b"plan\n--device=h100\n--context=8k\n--require=fits,context>=32k,concurrency>=8\n--tp=2",
        b"plan\n--engine=vllm\n--device=80GiB\n--engine-version=0.11.0\n--block-size=16\n--pp=2",
        b"plan\n--engine=sglang\n--kv-memory=20GiB\n--context-ranks=2\n--kv-dtype=fp8\n--dtype=int4",
        b"plan\n--target-users=32\n--parameters=7b\n--max-num-seqs=8\n--device=h100,24GB,l4",
        b"plan\n--engine=llama.cpp\n--device=24GB\n--max-num-batched-tokens=8k\n--encoder-tokens=9",
        b"audit\n--select=H1,H203\n--ignore=H4,H606\n--fail-on=note\n--format=markdown",
        b"audit\n--context=1m\n--batch-size=3\n--kv-dtype=int8\n--explain",
        b"diff\n--context=32k\n--kv-dtype=bf16\n--exit-code",
        b"convert\n--kv-heads=0-15:8,16-31:4\n--max-shard-size=5GB\n--dtype=bfloat16\n--seed=1",
        b"convert\n--sweep=8,4,2,1\n--sweep-methods=mean,merge\n--max-delta-loss=0.5\n--workers=2",
        b"uptrain\n--steps=3\n--learning-rate=1e-4\n--sequence-length=1k\n--warmup=2\n--teacher=x",
        b"evaluate\n--window=1k\n--stride=512\n--max-tokens=10k\n--torch-device=cpu",
    ]


def answers() -> list[bytes]:
    """What a server says in turn: status, headers and body of each answer."""
    names = ["config.json", "model.safetensors", "model.safetensors.index.json", "m.gguf"]
    files = [{"rfilename": name} for name in names]
    config, header = json.dumps(LLAMA_CONFIG), json.dumps({"t": 0})
    ranged = {"content-range": "bytes 0-99/1000", "content-length": "100"}
    index = _written()["model.safetensors.index.json"].decode()

    def said(*bodies: object) -> dict[str, object]:
        return {"answers": [{"status": 206, "headers": ranged, "body": body} for body in bodies]}

    return _json(
        said({"sha": "5" * 40, "siblings": files[:2]}, config, header),
        said({"sha": "5" * 40, "siblings": [files[0], files[2]]}, config, index, header),
        said({"sha": "5" * 40, "siblings": files[3:]}, "GGUF"),
        {"answers": [{"status": 302, "headers": {"location": "/x"}, "body": ""}]},
        {"answers": [{"status": 401, "headers": {"x-error-code": "GatedRepo"}, "body": ""}]},
    )


def _journal() -> list[object]:
    """The lines of the journal of a job `j` that has written one file."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "journal.jsonl")
        file = FinishedFile(name="a", nbytes=1, digest="0" * 32, measured={"k": 0.5})
        Journal(path, "j", [file]).close()
        return [json.loads(line) for line in path.read_bytes().splitlines()]


def records() -> list[bytes]:
    """Lines of a journal and of conversion.json, by the names of their files."""
    entry = {"bytes": 1, DIGEST: "0" * 32}
    return _json(
        {
            "journal.jsonl": _journal(),
            "conversion.json": [{"job": "j", "manifest": {"config.json": entry}, "layers": []}],
        }
    )


def side_files() -> list[bytes]:
    token = {"id": 7, "content": "<s>"}
    return _json(
        {
            "config.json": {**LLAMA_CONFIG, "eos_token_id": 7, "auto_map": {"AutoModel": "x.Y"}},
            "tokenizer.json": {"model": {"vocab": {"a": 0}}, "added_tokens": [token]},
            "tokenizer_config.json": {"model_max_length": 64, "chat_template": [{"template": "x"}]},
            "generation_config.json": {"eos_token_id": [7, 8], "bos_token_id": 1},
            "hf_quant_config.json": {"quantization": {"quant_algo": "FP8"}},
            "model.safetensors.index.json": {"weight_map": {"a": "a.safetensors"}},
        }
    )
